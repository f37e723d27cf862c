"""Tools of our own by their bare names: `_local.` before them tells a reader nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from portico.errors import CallError

if TYPE_CHECKING:
    from portico.domain.caller import Caller
    from portico.house import House

_OWN = re.compile(r"(?<![\w.])_local\.([A-Za-z_][A-Za-z0-9_]*)")
SERVER = "local"


class OwnNames:
    """Spells tools of our own by their bare names, where no other tool is called so."""

    def __init__(self, house: House, caller: Caller) -> None:
        self._resolver = house.gateway.edition.resolver
        self._visible = house.gateway.policy.visible(caller, house.gateway.edition)

    def shorten(self, text: str) -> str:
        """A text for people with bare names in it."""
        return _OWN.sub(lambda found: found[1] if self._is_enough(found[0], found[1]) else found[0], text)

    def _is_enough(self, handle: str, bare: str) -> bool:
        try:
            return self._resolver.resolve(bare, self._visible).handle == handle
        except CallError:
            return False

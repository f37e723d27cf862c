"""Words that mean nearly the same where tools are described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .words import stem

ACTION_WEIGHT = 0.15
THING_WEIGHT = 0.4
SHORT_FORM_WEIGHT = 0.7

_ACTIONS = """
create add new make insert generate open
delete remove drop erase clear destroy discard
get fetch retrieve read show view display obtain
list enumerate browse
search find lookup query locate discover
update edit modify change alter patch set adjust
send post publish share deliver submit
run execute launch start invoke trigger perform
stop cancel abort terminate halt kill end
calculate compute determine evaluate
check verify validate test confirm
convert transform translate
move rename relocate
copy duplicate clone
download save export
upload import
book reserve schedule
buy purchase order
compare diff difference
merge combine join concatenate
recommend suggest
chart plot graph visualize
undo revert restore rollback
"""
_THINGS = """
picture image photo
folder directory
bug issue ticket defect
mail email
document file
user account member person people
movie film
song music track
price cost rate
job task
webpage website site page link
row record entry
column field attribute
forecast weather
location place address
"""
_SHORT_FORMS = """
repo repository
db database
dir directory
env environment
config configuration
msg message
img image
doc document
docs documentation
auth authentication
temp temperature
app application
info information
param parameter
pic picture
org organization
admin administrator
stats statistics
dev development
prod production
calc calculate
del delete
num number
"""


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        group = [stem(word) for word in line.split()]
        yield from ((one, other) for one in group for other in group if one != other)


def _table() -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for text, weight in ((_ACTIONS, ACTION_WEIGHT), (_THINGS, THING_WEIGHT), (_SHORT_FORMS, SHORT_FORM_WEIGHT)):
        for one, other in _pairs(text):
            found.setdefault(one, {})[other] = weight
    return found


SYNONYMS = _table()
"""The stem of each word with the stems that mean nearly the same, and how much they count beside it."""

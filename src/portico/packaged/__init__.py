"""The former name of `portico.providers.database_tools`, for programs that import its modules from here."""

import sys

from portico.providers.database_tools import MODULES as MODULES
from portico.providers.database_tools import charts, data_quality, demo_database, text_search
from portico.providers.database_tools import queries_and_tables as tables
from portico.providers.database_tools import users_and_roles as permissions

base, demo, plots, quality, retrieval, security = tables, demo_database, charts, data_quality, text_search, permissions
for _name in ("base", "demo", "plots", "quality", "retrieval", "security"):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name]
sys.modules[f"{__name__}.tuning"] = tables

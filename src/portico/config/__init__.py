"""Settings, and the dialects of every client's config file; read by wiring alone."""

from .load import load_settings as load_settings
from .settings import NAMES as NAMES
from .settings import SURFACES as SURFACES
from .settings import CatalogSettings as CatalogSettings
from .settings import GatewaySettings as GatewaySettings
from .settings import InstallationPaths as InstallationPaths
from .settings import JournalSettings as JournalSettings
from .settings import LocalSettings as LocalSettings
from .settings import ScriptSettings as ScriptSettings
from .settings import SearchSettings as SearchSettings
from .settings import Semantic as Semantic
from .settings import StorageSettings as StorageSettings
from .settings import change_between as change_between
from .settings import find_paths as find_paths
from .trust import FILE as FILE
from .trust import PROFILES as PROFILES
from .trust import TrustBook as TrustBook
from .trust import Trusted as Trusted
from .trust import edited as edited
from .trust import find_config as find_config
from .trust import found_here as found_here
from .trust import location as location
from .trust import open_trust as open_trust
from .trust import trusts as trusts

"""What a database itself says of the objects that a registry names, one module for each kind of database."""

from .fact import Facts as Facts
from .fact import Form as Form
from .fact import Found as Found
from .fact import Named as Named
from .fact import OwnType as OwnType
from .fact import Views as Views
from .fact import named_by as named_by
from .looking import glance as glance
from .looking import look as look

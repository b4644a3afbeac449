from .tables import Table as Table
from .tables import record as record
from .tables import table as table

from .tables import Table as Table
from .tables import read_recorded_runs as read_recorded_runs
from .tables import table as table

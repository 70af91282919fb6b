from bufdb.api.database import connect as connect
from bufdb.api.explain import explain as explain
from bufdb.api.fit import fit as fit
from bufdb.api.watch import watch as watch

__version__: str

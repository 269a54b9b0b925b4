"""Servers and accounts, seen from the system account."""

from jetspark.errors import SystemRequestError as SystemRequestError
from jetspark.system.documents import AccountDetail as AccountDetail
from jetspark.system.documents import AccountJsz as AccountJsz
from jetspark.system.documents import AccountStat as AccountStat
from jetspark.system.documents import AccountStatz as AccountStatz
from jetspark.system.documents import Accountz as Accountz
from jetspark.system.documents import Answer as Answer
from jetspark.system.documents import ConnectionInfo as ConnectionInfo
from jetspark.system.documents import Connz as Connz
from jetspark.system.documents import Gatewayz as Gatewayz
from jetspark.system.documents import HealthProblem as HealthProblem
from jetspark.system.documents import Healthz as Healthz
from jetspark.system.documents import Jsz as Jsz
from jetspark.system.documents import Leafz as Leafz
from jetspark.system.documents import Routez as Routez
from jetspark.system.documents import ServerSummary as ServerSummary
from jetspark.system.documents import Statsz as Statsz
from jetspark.system.documents import Subsz as Subsz
from jetspark.system.documents import Subz as Subz
from jetspark.system.documents import Traffic as Traffic
from jetspark.system.documents import Varz as Varz
from jetspark.system.system import ServerFilter as ServerFilter
from jetspark.system.system import System as System
from jetspark.system.system import SystemCalls as SystemCalls

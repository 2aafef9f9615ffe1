"""The methods: one file per family, and one in `contrib` for each method of a single paper."""

from laggard.simulator.algorithms.all_reduce import AllReduce
from laggard.simulator.algorithms.asynchronous import AsyncPS, Downpour
from laggard.simulator.algorithms.contrib.async_diloco import AsyncDiLoCo
from laggard.simulator.algorithms.contrib.async_pipelines import AsyncPipelines
from laggard.simulator.algorithms.contrib.choco import CHOCO
from laggard.simulator.algorithms.contrib.d2 import D2
from laggard.simulator.algorithms.contrib.dana import DANA, DANASlim
from laggard.simulator.algorithms.contrib.decoupled_diloco import DecoupledDiLoCo
from laggard.simulator.algorithms.contrib.fedavg import FedAvg, FedProx, Scaffold
from laggard.simulator.algorithms.contrib.fedbuff import FedAsync, FedBuff
from laggard.simulator.algorithms.contrib.gradient_tracking import GradientTracking
from laggard.simulator.algorithms.contrib.k_batch_sync import KBatchSync, Malenia
from laggard.simulator.algorithms.contrib.majority_vote import MajorityVote
from laggard.simulator.algorithms.contrib.matcha import MATCHA
from laggard.simulator.algorithms.contrib.mindflayer import MindFlayer
from laggard.simulator.algorithms.contrib.p3 import P3
from laggard.simulator.algorithms.contrib.pipedream_2bw import PipeDream2BW
from laggard.simulator.algorithms.contrib.power_sgd import PowerSGD
from laggard.simulator.algorithms.contrib.priority_all_reduce import PriorityAllReduce
from laggard.simulator.algorithms.contrib.qg_dsgdm import QGDSGDm
from laggard.simulator.algorithms.contrib.relay_sgd import RelaySGD
from laggard.simulator.algorithms.contrib.ringleader import Ringleader
from laggard.simulator.algorithms.contrib.ringmaster import Ringmaster
from laggard.simulator.algorithms.contrib.streaming_diloco import StreamingDiLoCo
from laggard.simulator.algorithms.delayed import Delayed, DelayedStages
from laggard.simulator.algorithms.easgd import EASGD
from laggard.simulator.algorithms.gossip import ADPSGD, DPSGD, OverlapADPSGD
from laggard.simulator.algorithms.k_async import KAsync, SoftSync
from laggard.simulator.algorithms.local_all_reduce import QSR, DiLoCoAllReduce, LocalAllReduce
from laggard.simulator.algorithms.local_sgd import DiLoCo, LocalSGD
from laggard.simulator.algorithms.pipelines import (
    GPipe,
    Naive,
    OneForwardOneBackward,
    PipeDream,
)
from laggard.simulator.algorithms.push_sum import SGP, OverlapSGP
from laggard.simulator.algorithms.ssp import SSP
from laggard.simulator.algorithms.sync_replicas import SyncReplicas
from laggard.simulator.algorithms.synchronous import KSync, SyncPS

ALGORITHMS: dict[str, type] = {
    # a parameter server that takes gradients of its present weights
    "sync_ps": SyncPS,
    "k_sync": KSync,
    "k_batch_sync": KBatchSync,
    "malenia": Malenia,
    "mindflayer": MindFlayer,
    "majority_vote": MajorityVote,
    "sync_replicas": SyncReplicas,
    "p3": P3,
    # a parameter server that takes gradients of any age
    "async_ps": AsyncPS,
    "downpour": Downpour,
    "k_async": KAsync,
    "soft_sync": SoftSync,
    "ssp": SSP,
    "ringmaster": Ringmaster,
    "ringleader": Ringleader,
    "dana": DANA,
    "dana_slim": DANASlim,
    "delayed": Delayed,
    "delayed_stages": DelayedStages,
    # local steps between averages
    "local_sgd": LocalSGD,
    "diloco": DiLoCo,
    "async_diloco": AsyncDiLoCo,
    "local_all_reduce": LocalAllReduce,
    "qsr": QSR,
    "diloco_all_reduce": DiLoCoAllReduce,
    "streaming_diloco": StreamingDiLoCo,
    "decoupled_diloco": DecoupledDiLoCo,
    "easgd": EASGD,
    # clients that a server asks
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
    # no server
    "all_reduce": AllReduce,
    "priority_all_reduce": PriorityAllReduce,
    "power_sgd": PowerSGD,
    "dpsgd": DPSGD,
    "adpsgd": ADPSGD,
    "adpsgd_overlap": OverlapADPSGD,
    "sgp": SGP,
    "osgp": OverlapSGP,
    # gossip for data that differ, or on few links
    "gradient_tracking": GradientTracking,
    "d2": D2,
    "qg_dsgdm": QGDSGDm,
    "relay_sgd": RelaySGD,
    "matcha": MATCHA,
    "choco": CHOCO,
    # a model cut into stages
    "naive": Naive,
    "gpipe": GPipe,
    "1f1b": OneForwardOneBackward,
    "async_pipelines": AsyncPipelines,
    "pipedream": PipeDream,
    "pipedream_2bw": PipeDream2BW,
}

__all__ = [
    "ADPSGD",
    "ALGORITHMS",
    "CHOCO",
    "D2",
    "DANA",
    "DPSGD",
    "EASGD",
    "MATCHA",
    "P3",
    "QSR",
    "SGP",
    "SSP",
    "AllReduce",
    "AsyncDiLoCo",
    "AsyncPS",
    "AsyncPipelines",
    "DANASlim",
    "DecoupledDiLoCo",
    "Delayed",
    "DelayedStages",
    "DiLoCo",
    "DiLoCoAllReduce",
    "Downpour",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedProx",
    "GPipe",
    "GradientTracking",
    "KAsync",
    "KBatchSync",
    "KSync",
    "LocalAllReduce",
    "LocalSGD",
    "MajorityVote",
    "Malenia",
    "MindFlayer",
    "Naive",
    "OneForwardOneBackward",
    "OverlapADPSGD",
    "OverlapSGP",
    "PipeDream",
    "PipeDream2BW",
    "PowerSGD",
    "PriorityAllReduce",
    "QGDSGDm",
    "RelaySGD",
    "Ringleader",
    "Ringmaster",
    "Scaffold",
    "SoftSync",
    "StreamingDiLoCo",
    "SyncPS",
    "SyncReplicas",
]

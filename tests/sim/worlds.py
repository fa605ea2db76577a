"""The kinds of worlds, and which one a seed is for when nobody says. Imported late: a run of one kind needs no other."""

import time
import traceback
from importlib import import_module

WORLDS = {
    "node": ("tests.sim.world", "World"),
    "raft": ("tests.sim.raft_world", "RaftWorld"),
    "raft-replicated": ("tests.sim.unsynced_world", "UnsyncedWorld"),
    "raft-outage": ("tests.sim.unsynced_world", "OutageWorld"),
    "raft-members": ("tests.sim.raft_members", "ChangingWorld"),
    "commit-kinds": ("tests.sim.commit_worlds", "CommitWorld"),
    "commit-parts": ("tests.sim.commit_worlds", "PartedCommit"),
    "ephemeral": ("tests.sim.ephemeral_worlds", "NodeEphemeral"),
    "cluster-ephemeral": ("tests.sim.ephemeral_worlds", "ClusterEphemeral"),
    "ephemeral-stops": ("tests.sim.ephemeral_worlds", "ShortStops"),
    "commit-outage": ("tests.sim.commit_worlds", "PowerWorld"),
    "starved": ("tests.sim.starved_world", "StarvedWorld"),
    "cluster": ("tests.sim.cluster_world", "ClusterWorld"),
    "members": ("tests.sim.member_world", "MemberWorld"),
    "rescue": ("tests.sim.rescue_world", "RescueWorld"),
    "labels": ("tests.sim.label_world", "LabelWorld"),
    "moves": ("tests.sim.move_world", "MoveWorld"),
    "pins": ("tests.sim.pin_world", "PinWorld"),
    "replica-push": ("tests.sim.serving_world", "ReplicaPushWorld"),
    "growth": ("tests.sim.growth_worlds", "GrowthWorld"),
    "member-growth": ("tests.sim.growth_worlds", "MemberGrowth"),
    "batch-node": ("tests.sim.batch_world", "BatchWorld"),
    "batch-cluster": ("tests.sim.batch_world", "BatchClusterWorld"),
    "streams": ("tests.sim.stream_worlds", "NodeStreams"),
    "cluster-streams": ("tests.sim.stream_worlds", "ClusterStreams"),
    "stream-moves": ("tests.sim.stream_worlds", "StreamMoves"),
    "histories": ("tests.sim.history_worlds", "NodeHistories"),
    "cluster-histories": ("tests.sim.history_worlds", "ClusterHistories"),
    "moved-histories": ("tests.sim.history_worlds", "MovedHistories"),
    "markers": ("tests.sim.marker_worlds", "NodeMarkers"),
    "cluster-markers": ("tests.sim.marker_worlds", "ClusterMarkers"),
    "moved-markers": ("tests.sim.marker_worlds", "MovedMarkers"),
    "schedules": ("tests.sim.schedule_worlds", "NodeSchedules"),
    "cluster-schedules": ("tests.sim.schedule_worlds", "ClusterSchedules"),
    "moved-schedules": ("tests.sim.schedule_worlds", "MovedSchedules"),
    "work-queues": ("tests.sim.work_queue_worlds", "NodeWorkQueues"),
    "cluster-work-queues": ("tests.sim.work_queue_worlds", "ClusterWorkQueues"),
    "moved-work-queues": ("tests.sim.work_queue_worlds", "MovedWorkQueues"),
    "interest": ("tests.sim.work_queue_worlds", "NodeInterest"),
    "cluster-interest": ("tests.sim.work_queue_worlds", "ClusterInterest"),
    "moved-interest": ("tests.sim.work_queue_worlds", "MovedInterest"),
    "consumers": ("tests.sim.consumer_worlds", "NodeConsumers"),
    "cluster-consumers": ("tests.sim.consumer_worlds", "ClusterConsumers"),
    "moved-consumers": ("tests.sim.consumer_worlds", "MovedConsumers"),
    "removals": ("tests.sim.removal_worlds", "NodeRemovals"),
    "cluster-removals": ("tests.sim.removal_worlds", "ClusterRemovals"),
    "silent": ("tests.sim.silent_worlds", "NodeSilent"),
    "cluster-silent": ("tests.sim.silent_worlds", "ClusterSilent"),
    "transactions": ("tests.sim.transaction_worlds", "NodeTransactions"),
    "cluster-transactions": ("tests.sim.transaction_worlds", "ClusterTransactions"),
    "operator": ("tests.sim.operators", "NodeOperator"),
    "cluster-operator": ("tests.sim.operators", "ClusterOperator"),
    "verdicts": ("tests.sim.verdict_worlds", "NodeVerdicts"),
    "cluster-verdicts": ("tests.sim.verdict_worlds", "ClusterVerdicts"),
    "failover": ("tests.sim.group_worlds", "NodeFailover"),
    "cluster-failover": ("tests.sim.group_worlds", "ClusterFailover"),
    "key-order": ("tests.sim.group_worlds", "NodeKeyOrder"),
    "cluster-key-order": ("tests.sim.group_worlds", "ClusterKeyOrder"),
    "group-policies": ("tests.sim.group_worlds", "NodeChangingPolicies"),
    "cluster-group-policies": ("tests.sim.group_worlds", "ClusterChangingPolicies"),
    "dead-letters": ("tests.sim.dead_letter_worlds", "NodeDeadLetters"),
    "cluster-dead-letters": ("tests.sim.dead_letter_worlds", "ClusterDeadLetters"),
    "cluster-redrives": ("tests.sim.dead_letter_worlds", "ClusterRedrives"),
    "delays": ("tests.sim.delay_worlds", "NodeDelays"),
    "cluster-delays": ("tests.sim.delay_worlds", "ClusterDelays"),
    "deferred": ("tests.sim.delay_worlds", "NodeDeferred"),
    "cluster-deferred": ("tests.sim.delay_worlds", "ClusterDeferred"),
    "ttl": ("tests.sim.ttl_worlds", "NodeTtl"),
    "cluster-ttl": ("tests.sim.ttl_worlds", "ClusterTtl"),
    "compaction": ("tests.sim.compaction_worlds", "NodeCompaction"),
    "cluster-compaction": ("tests.sim.compaction_worlds", "ClusterCompaction"),
    "compression": ("tests.sim.compression_worlds", "NodeCompression"),
    "cluster-compression": ("tests.sim.compression_worlds", "ClusterCompression"),
    "compressed-tables": ("tests.sim.compression_worlds", "NodeCompressedTables"),
    "cluster-compressed-tables": ("tests.sim.compression_worlds", "ClusterCompressedTables"),
    "consumer-groups": ("tests.sim.consumer_group_worlds", "ClusterConsumerGroup"),
    "partitioned": ("tests.sim.parted_worlds", "NodeParted"),
    "cluster-partitioned": ("tests.sim.parted_worlds", "ClusterParted"),
    "doubled": ("tests.sim.parted_worlds", "NodeDoubled"),
    "cluster-doubled": ("tests.sim.parted_worlds", "ClusterDoubled"),
    "part-churn": ("tests.sim.part_churn_worlds", "ClusterPartChurn"),
    "damaged-state": ("tests.sim.state_world", "DamagedState"),
    "damage": ("tests.sim.damage_worlds", "NodeDamage"),
    "cluster-damage": ("tests.sim.damage_worlds", "ClusterDamage"),
}
TRACEBACK_LINES = 9
"""Of an exception that ends a run."""
_TURN = ("raft", "node", "raft", "raft", "cluster", "raft", "node", "raft", "raft", "raft", "damage", "cluster-damage")
"""As much work for each kind as it takes time: 200 seeds are about a minute."""


def make(kind, seed, **options):
    """A world."""
    module, name = WORLDS[kind]
    return getattr(import_module(module), name)(seed, **options)


def kind_of(seed):
    """Which world a seed is for."""
    return _TURN[seed % len(_TURN)]


def found_out(world, seed):
    """What a run of a broken broker complains of; one that stops itself is found out as well."""
    try:
        return world(seed).run()
    except Exception as error:  # noqa: BLE001
        return [repr(error)]


def play(kind, seed):
    """(kind, seed, complaints, faults, seconds, digest) of one run; what escapes from it is a complaint."""
    began = time.monotonic()
    world = make(kind, seed)
    try:
        found = world.run()
    except Exception:  # noqa: BLE001 - every seed is run, and told of
        found = traceback.format_exc().splitlines()[-TRACEBACK_LINES:]
    took = time.monotonic() - began
    return kind, seed, found, [fault for _, fault in sorted(world.faults)], took, world.digest.hexdigest()

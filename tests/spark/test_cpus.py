"""How many CPUs a process may use, by the files of its control groups."""

import os

import pytest
from pyspark_stan.reading import cpus
from pyspark_stan.reading.cpus import usable_cpus


@pytest.fixture(autouse=True)
def large_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(64))


def tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "no limit at all\n"}, 64),
        (
            {
                "proc/self/cgroup": "0::/pods/one/run\n",
                "sys/fs/cgroup/pods/one/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/pods/one/run/cpu.max": "max 100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/m\n2:cpu,cpuacct:/docker/x\n0::/\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "800000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
    ids=["no files", "none", "v2", "parts", "less than one", "more than there are", "other words", "above", "v1"],
)
def test_the_limit_of_the_container_counts(tmp_path, files, count):
    assert usable_cpus(tree(tmp_path, files)) == count


def test_the_affinity_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda _pid: {3, 4, 5})
    assert usable_cpus(tmp_path) == 3
    monkeypatch.delattr(cpus.os, "sched_getaffinity")
    monkeypatch.setattr(cpus.os, "cpu_count", lambda: None)
    assert usable_cpus(tmp_path) == 1

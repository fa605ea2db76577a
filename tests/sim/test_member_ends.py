"""A node that was removed, and what becomes of it when somebody starts it again with its old settings."""

from tests.sim.member_world import MemberWorld


class Calm(MemberWorld):
    """Peaceful, with five nodes; what has ended can be started again."""

    def __init__(self):
        super().__init__(next(seed for seed in range(200) if len(MemberWorld(seed, calm=True).names) == 5), calm=True)

    def _change(self):
        """Only as the test says."""

    def _bury(self, node):
        self.nodes.pop(node.name, None)
        node.crash(power=False)

    def remove(self, name):
        self.members.remove(name)
        self._ask("remove", name)

    def start_again(self, node):
        node.kept_down = False
        self.nodes[node.name] = node
        node.boot()


def test_a_removed_node_that_is_started_again_ends_again():
    world = Calm()
    world.begin()
    world.run_for(4)
    node = world.leader(0)
    world.remove(node.name)
    world.run_for(20)
    assert world.ended == 1
    assert node.name not in world.nodes
    lives = node.lives
    world.start_again(node)
    world.run_for(8)
    assert node.lives == lives + 1
    assert world.ended == 2
    assert world.finish() == []

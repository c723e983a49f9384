"""What a restart makes of records that compaction has cut messages out of."""

from __future__ import annotations

import pytest

from durable.log.bodies import move
from durable.log.record import Draft, Kind, Target
from durable.vhost.cutting import cut_settled
from tests.unit.durable.vhost.test_replay import Story
from tests.vhosts import make_batch


@pytest.mark.parametrize("stands", [False, True])
def test_what_compaction_has_cut_out_is_settled_whatever_became_of_its_acks(stands: bool) -> None:
    story = Story()
    story.step("queue", "a", 0)
    story.commit()
    (lane,) = story.registry.queue("a").lanes
    body = make_batch(0, [bytes(100)] * 10, key="a").raw()
    draft = Draft(Kind.PUBLISH, body, (Target(lane.id, 0),), 5)
    (position,) = story.store.append_nowait([draft])
    record = story.store.records[position]
    cut = cut_settled(body, [(0, 4), (5, 10)], captured=False)
    (moved,) = story.store.append_nowait([move(record, record.targets, cut)])
    story.commit()
    again = story.restarted([] if stands else [position])
    (lane,) = again.registry.queue("a").lanes
    assert lane.ready_ranges() == [(4, 5)]
    assert (lane.next, lane.ready_bytes) == (10, 100)
    assert again.store.needed() == {moved: 1}
    assert not again.replay.damaged

use super::*;

const MS: Duration = Duration::from_millis(1);

fn patience() -> Patience {
    Patience::new(20, 3 * MS)
}

/// So many come in every millisecond; as many as may wait.
fn come(patience: &Patience, from: Duration, millis: u32) -> Vec<Waiting<'_>> {
    (0..millis).flat_map(|step| (0..5).filter_map(move |_| patience.admit(from + step * MS))).collect()
}

fn wait_in_vain(patience: &Patience, waiting: Vec<Waiting<'_>>, now: Duration) -> usize {
    let count = waiting.len();
    for one in waiting {
        patience.waited_in_vain(now);
        drop(one);
    }
    count
}

#[test]
fn a_server_that_answers_is_asked_by_everybody() {
    let patience = patience();
    for step in 0..100 {
        let now = step * MS;
        let waiting: Vec<_> = (0..1_000).filter_map(|_| patience.admit(now)).collect();
        assert_eq!(waiting.len(), 1_000);
        waiting.iter().for_each(|_| patience.answered(now + MS / 2));
    }
}

#[test]
fn n4_no_more_than_a_dozen_wait_at_once_for_a_server_that_is_silent() {
    let patience = patience();
    let waiting = come(&patience, 1_000 * MS, 100);
    assert_eq!(waiting.len(), 12);
}

#[test]
fn n4_who_gives_up_has_waited_in_vain_if_the_server_was_silent_for_long() {
    let patience = patience();
    let _waiting = patience.admit(10 * MS);
    assert!(!patience.is_in_vain(10 * MS, 11 * MS), "not for long");
    assert!(patience.is_in_vain(10 * MS, 12 * MS));
    patience.answered(11 * MS);
    assert!(!patience.is_in_vain(10 * MS, 12 * MS), "somebody else was answered");
    assert!(patience.is_in_vain(11 * MS, 13 * MS));
}

#[test]
fn n4_no_more_than_twenty_wait_in_vain_however_often_an_outage_comes_back() {
    // All of those who may at once, or only a few each time.
    for arrive in [5, 2] {
        let (patience, mut in_vain) = (patience(), 0);
        for flap in 0..20 {
            let start = flap * 400 * MS;
            let ask = |from, millis| match patience.exhausted_by() {
                None => (0..millis * arrive).filter_map(|_| patience.admit(from)).collect(),
                Some(_) => Vec::new(),
            };
            in_vain += wait_in_vain(&patience, ask(start, 1), start + 3 * MS);
            patience.was_gone(start + 100 * MS);
            patience.was_troubled(start + 200 * MS);
            for step in 200..400 {
                ask(start + step * MS, 1).iter().for_each(|_| patience.answered(start + step * MS));
            }
        }
        assert!((9..=20).contains(&in_vain), "{in_vain}");
        assert_eq!(patience.exhausted_by(), Some(Fault::Outage));
        patience.was_tried(10_000 * MS);
        assert_eq!(come(&patience, 10_001 * MS, 100).len(), 12);
    }
}

#[test]
fn an_outage_is_over_when_nothing_was_the_matter_for_a_while() {
    let patience = patience();
    patience.waited_in_vain(MS);
    patience.was_gone(100 * MS);
    patience.was_troubled(500 * MS);
    patience.forget(500 * MS + PROBATION);
    assert!(patience.is_outage.load(Ordering::Relaxed));
    patience.forget(501 * MS + PROBATION);
    assert!(!patience.is_outage.load(Ordering::Relaxed));
    assert_eq!(patience.in_vain.load(Ordering::Relaxed), 0);
}

#[test]
fn an_outage_is_not_over_before_anybody_can_have_waited_in_vain() {
    let patience = Patience::new(20, 1_000 * MS);
    patience.waited_in_vain(MS);
    patience.was_gone(MS);
    patience.forget(2_000 * MS);
    assert!(patience.is_outage.load(Ordering::Relaxed));
    patience.forget(2_002 * MS);
    assert!(!patience.is_outage.load(Ordering::Relaxed));
}

#[test]
fn hiccups_are_forgotten_where_enough_others_are_answered() {
    let patience = patience();
    for round in 0..100 {
        let start = round * 20 * MS;
        let waiting = come(&patience, start, 3);
        assert_eq!(wait_in_vain(&patience, waiting, start + 3 * MS), 12, "round {round}");
        for _ in 0..12 * ANSWERS_FOR_ONE {
            patience.answered(start + 4 * MS);
        }
    }
    // Where there are not, they are a fault.
    for round in 0..2 {
        let waiting = come(&patience, (3_000 + round * 20) * MS, 3);
        wait_in_vain(&patience, waiting, (3_003 + round * 20) * MS);
    }
    assert_eq!(patience.exhausted_by(), Some(Fault::Hiccups));
    assert_eq!(come(&patience, 4_000 * MS, 10).len(), 0);
}

#[test]
fn hiccups_are_forgotten_after_a_while_without_any() {
    let patience = patience();
    let waiting = come(&patience, 10 * MS, 3);
    assert_eq!(wait_in_vain(&patience, waiting, 13 * MS), 12);
    assert_eq!(come(&patience, 2_000 * MS, 1).len(), 5);
    assert_eq!(patience.in_vain.load(Ordering::Relaxed), 12);
    come(&patience, 13 * MS + UNFORGOTTEN * PROBATION + MS, 1);
    assert_eq!(patience.in_vain.load(Ordering::Relaxed), 0);
}

/// Ten requests a second, and a server that is there half of the time: no three in a row are late.
#[test]
fn n4_a_few_requests_do_not_wait_in_vain_for_ever_either() {
    let patience = patience();
    for round in 0.. {
        let start = round * 400 * MS;
        for late in [0, 100] {
            let waiting = patience.admit(start + late * MS).unwrap();
            patience.waited_in_vain(start + (late + 3) * MS);
            drop(waiting);
        }
        if patience.exhausted_by() == Some(Fault::Hiccups) {
            return assert_eq!(round, 9);
        }
        for prompt in [200, 300] {
            let waiting = patience.admit(start + prompt * MS).unwrap();
            patience.answered(start + (prompt + 1) * MS);
            drop(waiting);
        }
    }
}

#[test]
fn n4_hiccups_that_go_on_after_the_server_was_tried_are_an_outage() {
    let patience = patience();
    let vex = |from: Duration| (0..20).for_each(|step| patience.waited_in_vain(from + step * MS));
    for (tried_at, fault) in [(40, Fault::Hiccups), (400, Fault::Outage), (2_000, Fault::Hiccups)] {
        vex((tried_at - 30) * MS);
        assert_eq!(patience.exhausted_by(), Some(fault), "before {tried_at} ms");
        patience.was_tried(tried_at * MS);
        assert_eq!(patience.exhausted_by(), None);
        // Soon afterwards.
        vex((tried_at + 100) * MS);
        assert_eq!(patience.exhausted_by(), Some(Fault::Outage));
        patience.was_tried((tried_at + 200) * MS);
    }
}

/// Many come at once, and then nobody for a while.
#[test]
fn a_fault_that_is_over_keeps_nobody_from_asking_also_where_requests_come_in_bursts() {
    for is_outage in [true, false] {
        let patience = patience();
        (0..8).for_each(|_| patience.waited_in_vain(13 * MS));
        if is_outage {
            patience.was_gone(100 * MS);
        }
        assert_eq!(patience.exhausted_by(), None);
        for burst in 1..50 {
            let start = (100 + burst * 10) * MS;
            // The first says that it is well.
            let first = patience.admit(start);
            patience.answered(start);
            let waiting: Vec<_> = (0..50).filter_map(|_| patience.admit(start)).collect();
            assert_eq!(waiting.len(), 50, "burst {burst}");
            waiting.iter().chain(&first).for_each(|_| patience.answered(start + MS / 3));
        }
        assert_eq!(patience.in_vain.load(Ordering::Relaxed), 0);
    }
}

/// One in five hundred is late for other reasons.
#[test]
fn an_outage_ends_also_where_a_few_answers_are_late() {
    let patience = patience();
    patience.was_gone(100 * MS);
    for step in 101..500 {
        let now = step * MS;
        let waiting = come(&patience, now, 1);
        assert_eq!(waiting.len(), 5, "in step {step}");
        waiting.iter().for_each(|_| patience.answered(now + MS / 2));
        if step % 100 == 0 {
            patience.waited_in_vain(now + MS / 2);
        }
    }
    assert!(!patience.is_outage.load(Ordering::Relaxed));
}

#[test]
fn nobody_is_kept_from_asking_by_an_outage_that_nobody_has_waited_in() {
    let patience = patience();
    patience.was_gone(MS);
    patience.was_found(2 * MS);
    (0..12).for_each(|_| patience.waited_in_vain(2 * MS));
    assert_eq!(patience.exhausted_by(), None, "hiccups are no outage");
    patience.is_over();
    assert_eq!((0..1_000).filter_map(|_| patience.admit(2 * MS)).collect::<Vec<_>>().len(), 1_000);
}

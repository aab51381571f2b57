//! What the seed decides, without a socket.

use tollgate_chaos::{Chaos, Direction, Fate, Link, Passage, Place, Script, ms};

const COUNT: u64 = 10_000;

fn place(number: u64) -> Place {
    Place { connection: 3, direction: Direction::ToClient, number }
}

fn datagrams(chaos: &Chaos) -> Vec<Vec<Passage>> {
    (0..COUNT).map(|number| chaos.datagram(place(number))).collect()
}

fn fates(chaos: &Chaos) -> Vec<Fate> {
    (0..COUNT).map(|number| chaos.connection(number)).collect()
}

/// Whether so many of all are about this part of them: by five times as much as chance is off by.
fn is_about(count: usize, rate: f64) -> bool {
    let expected = COUNT as f64 * rate;
    (count as f64 - expected).abs() <= 5.0 * (expected * (1.0 - rate)).sqrt()
}

#[test]
fn the_same_seed_has_the_same_fate_and_another_seed_another_one() {
    let lossy = |seed| datagrams(&Chaos::new(seed).loss(0.3).duplicate(0.1).reorder(0.2).delay(ms(2)..ms(10)));
    assert_eq!(lossy(1), lossy(1));
    assert_ne!(lossy(1), lossy(2));
    let broken = |seed| fates(&Chaos::new(seed).reset(0.2).hold(0.2).lose_replies(0.2).cut(0.2, 1..100));
    assert_eq!(broken(1), broken(1));
    assert_ne!(broken(1), broken(2));
}

#[test]
fn as_many_datagrams_are_lost_doubled_and_overtaken_as_asked_for() {
    for seed in 0..20 {
        let all = datagrams(&Chaos::new(seed).loss(0.3).duplicate(0.1).reorder(0.2));
        let arriving: Vec<_> = all.iter().filter(|passages| !passages.is_empty()).collect();
        assert!(is_about(COUNT as usize - arriving.len(), 0.3), "{seed}");
        let doubled = arriving.iter().filter(|passages| passages.len() == 2).count();
        assert!(is_about(doubled, 0.1 * 0.7), "{seed}");
        let overtaken = arriving.iter().filter(|passages| passages.iter().take(1).any(|first| first.overtaken_by > 0));
        assert!(is_about(overtaken.count(), 0.2 * 0.7), "{seed}");
        assert!(all.iter().flatten().all(|passage| passage.overtaken_by <= 3), "{seed}");
    }
}

#[test]
fn as_many_connections_break_as_asked_for() {
    for seed in 0..20 {
        let all = fates(&Chaos::new(seed).reset(0.1).hold(0.2).lose_replies(0.05).cut(0.3, 1..100));
        let share =
            |is_meant: fn(&Fate) -> bool, rate| is_about(all.iter().filter(|fate| is_meant(fate)).count(), rate);
        assert!(share(|fate| *fate == Fate::Reset, 0.1), "{seed}");
        assert!(share(|fate| *fate == Fate::Held, 0.2), "{seed}");
        assert!(share(|fate| *fate == Fate::Cut { after: 0 }, 0.05), "{seed}");
        assert!(share(|fate| matches!(fate, Fate::Cut { after: 1..100 }), 0.3), "{seed}");
        assert!(share(|fate| *fate == Fate::Serves, 0.35), "{seed}");
    }
}

#[test]
fn delays_are_from_the_whole_of_their_range() {
    let chaos = Chaos::new(5).delay(ms(10)..ms(20));
    let delays: Vec<_> = (0..COUNT).map(|number| chaos.chunk(place(number))).collect();
    assert!(delays.iter().all(|delay| (ms(10)..ms(20)).contains(delay)));
    for tenth in 10..20 {
        let inside = delays.iter().filter(|delay| (ms(tenth)..ms(tenth + 1)).contains(delay));
        assert!(is_about(inside.count(), 0.1), "{tenth}");
    }
}

#[test]
fn one_change_changes_nothing_else() {
    let (quick, slow) = (Chaos::new(9).loss(0.3), Chaos::new(9).loss(0.3).delay(ms(50)).duplicate(0.5));
    let lost = |chaos: &Chaos| -> Vec<bool> { datagrams(chaos).iter().map(Vec::is_empty).collect() };
    assert_eq!(lost(&quick), lost(&slow));
    // Whoever was lost when less was is lost when more is.
    let more = lost(&Chaos::new(9).loss(0.4));
    assert!(lost(&quick).iter().zip(more).all(|(before, now)| now || !before));
}

#[test]
fn each_client_and_each_direction_has_a_fate_of_its_own() {
    let chaos = Chaos::new(4).loss(0.5);
    let lost = |connection, direction| -> Vec<bool> {
        (0..100).map(|number| chaos.datagram(Place { connection, direction, number }).is_empty()).collect()
    };
    assert_ne!(lost(0, Direction::ToServer), lost(1, Direction::ToServer));
    assert_ne!(lost(0, Direction::ToServer), lost(0, Direction::ToClient));
    let one_way = Chaos::new(4).on(Direction::ToServer, Link::new().loss(1.0));
    assert!(one_way.datagram(Place { direction: Direction::ToServer, ..place(0) }).is_empty());
    assert_eq!(one_way.datagram(place(0)).len(), 1);
}

#[test]
fn where_parts_are_more_than_all_those_named_first_come_first() {
    assert!(fates(&Chaos::new(1).reset(1.0).hold(1.0).cut(1.0, 1..2)).iter().all(|fate| *fate == Fate::Reset));
    assert!(fates(&Chaos::new(1).lose_replies(1.0).cut(1.0, 1..2)).iter().all(|fate| *fate == Fate::Cut { after: 0 }));
}

#[test]
#[should_panic(expected = "1.5 is not a part of one")]
fn more_than_all_cannot_be_lost() {
    let _ = Chaos::new(1).loss(1.5);
}

#[test]
fn a_script_has_a_phase_for_every_moment() {
    let [first, second] = [1, 2].map(Chaos::new);
    let once = Script::new().then(ms(10), first.clone()).then(ms(20), second.clone());
    let expected = [(0, &first), (9, &first), (10, &second), (29, &second), (30, &second), (1_000, &second)];
    expected.iter().for_each(|(at, chaos)| assert_eq!(once.at(ms(*at)), Some(*chaos), "{at}"));
    let repeated = once.clone().repeated();
    let expected = [(29, &second), (30, &first), (39, &first), (40, &second), (3_000, &first), (3_010, &second)];
    expected.iter().for_each(|(at, chaos)| assert_eq!(repeated.at(ms(*at)), Some(*chaos), "{at}"));
    assert_eq!(Script::new().repeated().at(ms(5)), None);
    assert_eq!(Script::new().then(ms(0), first.clone()).repeated().at(ms(5)), Some(&first));
}

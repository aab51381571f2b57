use super::*;
use crate::chaos::{Chaos, Direction, ms};
use crate::fate::Place;
use proptest::prelude::*;

/// A datagram that says which it is.
type Item = [u8; 2];

fn item(number: u64) -> Item {
    u16::try_from(number).unwrap().to_be_bytes()
}

fn number(item: Item) -> u64 {
    u16::from_be_bytes(item).into()
}

/// What arrives, and when, if a datagram comes every so often, and how many were to arrive.
fn carry(chaos: &Chaos, count: u64, every: Duration) -> (Vec<(Duration, u64)>, usize) {
    let direction = Direction::ToServer;
    let link = chaos.link(direction);
    let (mut line, mut overtaking, mut copies) = (Line::new(), Overtaking::new(), 0);
    for number in 0..count {
        let now = every * u32::try_from(number).unwrap();
        let passages = chaos.datagram(Place { connection: 0, direction, number });
        copies += passages.len();
        for (delay, item) in overtaking.expire(now).into_iter().chain(overtaking.pass(&item(number), &passages, now)) {
            line.push(item, delay, link, now);
        }
    }
    while let Some(now) = overtaking.next_expiry() {
        for (delay, item) in overtaking.expire(now) {
            line.push(item, delay, link, now);
        }
    }
    let mut arrived = Vec::new();
    while let Some((due, _)) = line.next() {
        arrived.push((due, number(line.pop().unwrap())));
    }
    assert_eq!(line.bytes, 0);
    (arrived, copies)
}

fn chaos() -> impl Strategy<Value = Chaos> {
    let rate = || prop_oneof![Just(0.0), 0.0..1.0, Just(1.0)];
    (any::<u64>(), rate(), rate(), rate(), 0..20_u64, 0..20_u64).prop_map(
        |(seed, loss, duplicate, reorder, shortest, jitter)| {
            let delay = ms(shortest)..ms(shortest + jitter);
            Chaos::new(seed).loss(loss).duplicate(duplicate).reorder(reorder).delay(delay)
        },
    )
}

proptest! {
    #[test]
    fn nothing_is_made_up_or_forgotten(chaos in chaos(), every in 0..10_u64) {
        let (arrived, copies) = carry(&chaos, 200, ms(every));
        prop_assert_eq!(arrived.len(), copies);
        for number in 0..200 {
            let place = Place { connection: 0, direction: Direction::ToServer, number };
            let times = arrived.iter().filter(|(_, arrived)| *arrived == number).count();
            prop_assert_eq!(times, chaos.datagram(place).len());
        }
    }

    #[test]
    fn the_order_is_kept_where_no_other_is_asked_for(chaos in chaos(), every in 0..10_u64) {
        let (arrived, _) = carry(&chaos.reorder(0.0), 200, ms(every));
        prop_assert!(arrived.is_sorted());
    }

    #[test]
    fn nobody_is_overtaken_by_more_than_asked_for(chaos in chaos(), every in 0..10_u64) {
        let chaos = chaos.duplicate(0.0);
        let (arrived, _) = carry(&chaos, 200, ms(every));
        for (index, (_, number)) in arrived.iter().enumerate() {
            let overtook = arrived.iter().take(index).filter(|(_, other)| other > number).count();
            let place = Place { connection: 0, direction: Direction::ToServer, number: *number };
            let [passage] = chaos.datagram(place)[..] else { panic!("{number} has arrived") };
            prop_assert!(overtook as u64 <= passage.overtaken_by, "{number}: {arrived:?}");
        }
    }

    #[test]
    fn the_same_seed_brings_the_same_in_the_same_order(chaos in chaos(), every in 0..10_u64) {
        prop_assert_eq!(carry(&chaos, 200, ms(every)), carry(&chaos, 200, ms(every)));
    }

    #[test]
    fn nothing_arrives_before_its_time_and_nothing_much_later(chaos in chaos(), every in 0..10_u64) {
        let (arrived, _) = carry(&chaos, 200, ms(every));
        let delay = chaos.link(Direction::ToServer).delay;
        for (due, number) in arrived {
            let sent = ms(every) * u32::try_from(number).unwrap();
            prop_assert!(due >= sent + delay.shortest);
            // A timer that nobody looks at before the next datagram comes is late by as much.
            prop_assert!(due <= sent + delay.shortest + delay.jitter + LONGEST_HOLD + ms(every));
        }
    }

    #[test]
    fn no_more_passes_than_the_bandwidth(
        rate in 1_000..1_000_000_u64,
        lengths in proptest::collection::vec(1..2_000_usize, 1..50),
    ) {
        let link = Link::new().bytes_per_second(NonZeroU64::new(rate).unwrap());
        let mut line = Line::new();
        lengths.iter().for_each(|length| line.push(vec![0; *length], Duration::ZERO, &link, ms(5)));
        let mut passed = 0;
        while let Some((due, item)) = line.next() {
            passed += item.len();
            let takes = passed as f64 / rate as f64;
            prop_assert!(((due - ms(5)).as_secs_f64() - takes).abs() < 1e-6);
            line.pop();
        }
    }
}

#[test]
fn who_is_to_be_overtaken_is_by_so_many_and_no_more() {
    let mut overtaking = Overtaking::new();
    let passage = |overtaken_by| [Passage { delay: Duration::ZERO, overtaken_by }];
    let mut order = Vec::new();
    for (number, by) in [(0, 2), (1, 0), (2, 1), (3, 0), (4, 0)] {
        order.extend(overtaking.pass(&item(number), &passage(by), ms(0)).into_iter().map(|(_, item)| item));
    }
    assert_eq!(order, [1, 3, 0, 2, 4].map(item));
}

#[test]
fn who_is_overtaken_by_nobody_goes_on_after_a_while() {
    let mut overtaking = Overtaking::new();
    assert!(overtaking.pass(&item(0), &[Passage { delay: ms(1), overtaken_by: 1 }], ms(7)).is_empty());
    assert_eq!(overtaking.next_expiry(), Some(ms(57)));
    assert!(overtaking.expire(ms(56)).is_empty());
    assert_eq!(overtaking.expire(ms(57)), [(ms(1), item(0))]);
}

#[test]
fn a_stream_is_written_bit_by_bit() {
    let mut line = Line::new();
    line.push(bytes::Bytes::from_static(b"abc"), Duration::ZERO, &Link::new(), ms(0));
    line.advance(2);
    assert_eq!(line.next().unwrap().1.as_ref(), b"c");
    line.advance(1);
    assert!(line.is_empty() && line.bytes == 0);
}

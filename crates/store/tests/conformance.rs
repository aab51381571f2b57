//! One suite over the library and over real servers: the same histories lead to the same decisions, to the token.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Client, Kind, Random, Server, command};
use std::fmt::Write;
use std::time::Duration;
use tollgate_limit::{Blocked, Calendar, CalendarUnit, Cell, Decision, Limit, Op, Quota, Time};
use tollgate_store::{Ask, BUCKETS, Call, Fingerprint, GIVE_BACK, LIMITS, Refund, Reply, Says, Script, WINDOWS};

/// The scripts with a clock that the test sets: the last two arguments. Keys live longer, since that clock is faster.
struct Scripts {
    buckets: String,
    windows: String,
    limits: String,
    give_back: String,
}

impl Scripts {
    fn load(client: &mut Client) -> Scripts {
        let mut load = |script: &Script| {
            let mut source = script.source().to_owned();
            for (product, test) in [
                ("'PSETEX', KEYS[i], format('%d', life", "'PSETEX', KEYS[i], format('%d', life + 86400000"),
                ("redis.call('TIME')", "{ ARGV[#ARGV - 1], ARGV[#ARGV] }"),
                ("'PX', life", "'PX', life + 86400000"),
                ("'PEXPIRE', key, ", "'PEXPIRE', key, 86400000 + "),
            ] {
                let is_there = |script: &Script| script.source().contains(product);
                assert!(is_there(&LIMITS) || is_there(&BUCKETS), "{product}");
                source = source.replace(product, test);
            }
            client.text(&["SCRIPT", "LOAD", &source])
        };
        let (buckets, windows, limits) = (load(&BUCKETS), load(&WINDOWS), load(&LIMITS));
        Scripts { buckets, windows, limits, give_back: load(&GIVE_BACK) }
    }

    fn command(&self, call: &Call, now: u64) -> Vec<u8> {
        let loaded = [(&BUCKETS, &self.buckets), (&WINDOWS, &self.windows), (&LIMITS, &self.limits)];
        let digest = loaded.iter().find(|(script, _)| script.digest() == call.script().digest()).unwrap().1;
        written(digest, call.asks(), &call.arguments().collect::<Vec<_>>(), now)
    }

    fn refund(&self, refund: &Refund, now: u64) -> Vec<u8> {
        written(&self.give_back, refund.asks(), &refund.arguments().collect::<Vec<_>>(), now)
    }
}

fn written(digest: &str, asks: &[Ask], arguments: &[&str], now: u64) -> Vec<u8> {
    let names: Vec<String> = asks.iter().map(|ask| ask.key.name("tg:")).collect();
    let (count, seconds, micros) = (names.len().to_string(), now / 1_000_000, now % 1_000_000);
    let time = [seconds.to_string(), micros.to_string()];
    let mut words = vec!["EVALSHA", digest, &count];
    words.extend(names.iter().map(String::as_str));
    words.extend(arguments);
    words.extend(time.iter().map(String::as_str));
    command(&words)
}

/// A limit, and how long a while is for it.
#[derive(Clone, Copy)]
struct Case {
    limit: Limit,
    period: Duration,
    most: u64,
}

fn case(limit: Limit, quota: &str) -> Case {
    let quota: Quota = quota.parse().unwrap();
    Case { limit, period: quota.period(), most: quota.burst() }
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// Every algorithm, with numbers that are easy and numbers that are not.
fn cases() -> Vec<Case> {
    let seconds = Duration::from_secs;
    let mut cases = Vec::new();
    for text in [
        "10 per second",
        "1 per minute",
        "3 per second",
        "7 per minute burst 20",
        "1000003 per hour burst 12345",
        "9999991 per second",
        "12345678901 per second",
        "1000 per week burst 5000",
        "13 per 7 days",
        "100 per 3650 days",
    ] {
        cases.push(case(Limit::token_bucket(quota(text)), text));
        cases.push(case(Limit::leaky_queue(quota(text)), text));
        cases.push(case(Limit::smooth_bursty(quota(text), Duration::ZERO), text));
        cases.push(case(Limit::smooth_bursty(quota(text), quota(text).period() / 3), text));
    }
    for text in ["10 per second", "3 per 700ms", "1000000 per day", "12345678901 per second", "17 per 13 weeks"] {
        cases.push(case(Limit::fixed_window(quota(text)), text));
        cases.push(case(Limit::cycles(quota(text), quota(text).period() * 2), text));
        cases.push(case(Limit::cycles(quota(text), Duration::MAX), text));
        cases.push(case(Limit::sliding_window(quota(text)), text));
    }
    cases.push(case(Limit::sliding_window(quota("4000000000000 per 4 weeks")), "4000000000000 per 4 weeks"));
    for (unit, text) in [
        (CalendarUnit::Minute, "5 per minute"),
        (CalendarUnit::Hour, "7 per hour"),
        (CalendarUnit::Day, "100 per day"),
        (CalendarUnit::Week, "1000 per week"),
        (CalendarUnit::Month, "1000 per 4 weeks"),
        (CalendarUnit::Year, "3 per 52 weeks"),
    ] {
        for offset in [0, 9 * 3_600, -5 * 3_600 - 1_800] {
            let calendar = Calendar::at_offset(unit, offset).unwrap();
            cases.push(case(Limit::calendar_window(quota(text).count(), calendar).unwrap(), text));
        }
    }
    for text in ["10 per second", "1 per minute", "100 per 1500us", "25 per 1000001ns"] {
        cases.push(case(Limit::sliding_log(quota(text)), text));
        for blocked in [Blocked::Ignored, Blocked::Counted] {
            for gap in [Duration::ZERO, quota(text).period() / 20, quota(text).period() * 2] {
                cases.push(case(Limit::rolling_log(quota(text), gap, blocked), text));
            }
        }
    }
    for text in ["10 per second", "7 per 3 seconds", "1000003 per hour"] {
        for (warm_up, wait) in [(seconds(3), Duration::ZERO), (seconds(60), seconds(2)), (seconds(7), Duration::MAX)] {
            cases.push(case(Limit::smooth_warming_up(quota(text), warm_up, wait).unwrap(), text));
        }
    }
    cases
}

/// A client's requests, in order.
struct History {
    random: Random,
    case: Case,
    now: u64,
}

impl History {
    fn new(case: Case, seed: u64) -> History {
        let mut random = Random(seed);
        // Some time in this decade.
        let now = 1_790_000_000_000_000 + random.below(200_000_000_000_000);
        History { random, case, now }
    }

    /// Moves on by nothing, a little, a while or long.
    fn pass(&mut self) {
        let period = u64::try_from(self.case.period.as_micros()).unwrap().max(1);
        let longest = match self.random.below(8) {
            0 | 1 => 1,
            2 | 3 => period / self.case.most.max(1) * 3 + 2,
            4 | 5 => period / 4,
            6 => period * 2,
            _ => period * 20,
        };
        // In the year 2255 microseconds are too many for a double.
        let left = 7_000_000_000_000_000 - self.now;
        self.now += self.random.below(longest.min(left / 20));
        if self.random.below(6) == 0 {
            // Sums that come out even.
            self.now = self.now.next_multiple_of(100_000);
        }
    }

    fn cost(&mut self) -> u64 {
        let most = self.case.most;
        if self.random.below(30) == 0 {
            // From where doubles lose count.
            return u64::MAX >> self.random.below(13);
        }
        match self.random.below(10) {
            0 => 0,
            1 => self.random.below(most) + 1,
            2 => most + self.random.below(most / 3 + 2),
            3 => most / 3 + 1,
            _ => 1 + self.random.below(most / 10 + 1),
        }
    }

    fn max_wait(&mut self) -> Option<Duration> {
        let period = u64::try_from(self.case.period.as_nanos()).unwrap();
        match self.random.below(4) {
            0 => Some(Duration::from_nanos(self.random.below(period / 2 + 1))),
            1 => Some(self.case.period * 3),
            _ => None,
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now * 1_000)
    }
}

fn key(number: u64) -> Fingerprint {
    Fingerprint::new(number, b"somebody")
}

/// What the library says to one limit.
fn expected(cell: &Cell, ask: &Ask, now: Time) -> Decision {
    match ask.max_wait {
        None => cell.decide(&ask.limit, Op::Take(ask.cost), now),
        Some(max_wait) => cell.decide(&ask.limit, Op::Reserve { cost: ask.cost, max_wait }, now),
    }
}

#[track_caller]
fn assert_same(call: &Call, reply: &Reply, expected: &[Decision], story: &str) {
    let said = call.read(reply).unwrap_or_else(|_| panic!("{reply:?} to {call:?}\n{story}"));
    assert_eq!(said, expected, "\n{reply:?}\n{call:?}\n{story}");
}

/// One client of one limit, whose requests the store may see up to so many microseconds too early.
fn run_alone(kind: Kind, case: Case, (seed, back): (u64, u64), server: &mut (Client, Scripts)) {
    let (client, scripts) = server;
    let mut history = History::new(case, seed);
    let (cell, mut latest) = (Cell::default(), 0);
    let (mut bytes, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..150 {
        history.pass();
        latest = history.now.max(latest);
        if history.random.below(4) == 0 {
            history.now = history.now.min(latest - history.random.below(back));
        }
        let (cost, max_wait) = (history.cost(), history.max_wait());
        let ask = Ask { key: key(seed), limit: case.limit, cost, max_wait, says: Says::Refuse };
        let decision = expected(&cell, &ask, history.time());
        let call = Call::new(vec![ask]).unwrap();
        bytes.extend(scripts.command(&call, history.now));
        steps.push((call, decision, history.now));
    }
    client.send(&bytes);
    let mut story = format!("{kind:?}, {:?}\n", case.limit);
    for (call, decision, now) in steps {
        let reply = client.reply();
        let _ = writeln!(story, "at {now} for {}: {:?}", call.asks()[0].cost, decision.outcome);
        assert_same(&call, &reply, &[decision], &story);
    }
}

#[test]
fn c3_every_algorithm_decides_in_the_store_as_in_the_library() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let mut client = server.client();
        let scripts = Scripts::load(&mut client);
        let mut asked = (client, scripts);
        let mut seed = 0;
        for case in cases() {
            for _ in 0..6 {
                seed += 1;
                run_alone(kind, case, (seed, 0), &mut asked);
            }
        }
    }
}

#[test]
fn a_clock_that_goes_back_a_little_matters_to_the_store_as_to_the_library() {
    let server = Server::start(Kind::Redis, &[]);
    let mut client = server.client();
    let scripts = Scripts::load(&mut client);
    let mut asked = (client, scripts);
    let buckets = ["10 per second", "7 per minute burst 20"].map(|text| (text, Limit::token_bucket(quota(text))));
    let logs = ["10 per second", "30 per minute"]
        .map(|text| (text, Limit::rolling_log(quota(text), quota(text).period() / 20, Blocked::Counted)));
    let plain_logs = ["10 per second", "30 per minute"].map(|text| (text, Limit::sliding_log(quota(text))));
    let windows = ["10 per second", "30 per minute"].map(|text| (text, Limit::fixed_window(quota(text))));
    for (seed, (text, limit)) in (700_000..).zip([buckets, logs, plain_logs, windows].concat().repeat(20)) {
        run_alone(Kind::Redis, case(limit, text), (seed, 1_000_000), &mut asked);
    }
}

/// How many tokens the library has got back, where anything can be given back.
fn expected_back(cell: &Cell, ask: &Ask, now: Time) -> u64 {
    let missing = |op| {
        let Decision { limit, remaining, debt, .. } = cell.decide(&ask.limit, op, now);
        limit - remaining + debt
    };
    let before = missing(Op::Peek(0));
    before - missing(Op::Refund(ask.cost))
}

/// A question or tokens that are given back, and what the library says.
enum Step {
    Ask(Call, Decision),
    GiveBack(Refund, u64),
}

/// One client of one limit who takes and gives back.
fn run_with_refunds(kind: Kind, case: Case, seed: u64, server: &mut (Client, Scripts)) {
    let (client, scripts) = server;
    let mut history = History::new(case, seed);
    let cell = Cell::default();
    let (mut bytes, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..150 {
        history.pass();
        let (cost, max_wait) = (history.cost(), history.max_wait());
        let ask = Ask { key: key(seed), limit: case.limit, cost, max_wait, says: Says::Refuse };
        if history.random.below(3) == 0 {
            let given = expected_back(&cell, &ask, history.time());
            let refund = Refund::new(vec![ask]).unwrap();
            bytes.extend(scripts.refund(&refund, history.now));
            steps.push((Step::GiveBack(refund, given), history.now));
        } else {
            let decision = expected(&cell, &ask, history.time());
            let call = Call::new(vec![ask]).unwrap();
            bytes.extend(scripts.command(&call, history.now));
            steps.push((Step::Ask(call, decision), history.now));
        }
    }
    client.send(&bytes);
    let mut story = format!("{kind:?}, {:?}\n", case.limit);
    for (step, now) in steps {
        let reply = client.reply();
        match step {
            Step::Ask(call, decision) => {
                let _ = writeln!(story, "at {now} for {}: {:?}", call.asks()[0].cost, decision.outcome);
                assert_same(&call, &reply, &[decision], &story);
            }
            Step::GiveBack(refund, given) => {
                let _ = writeln!(story, "at {now} {} given back: {given}", refund.asks()[0].cost);
                assert_eq!(refund.read(&reply), Ok(vec![given]), "{reply:?}\n{story}");
            }
        }
    }
}

/// Logs and warm-ups know nothing that could be given back.
fn takes_back(limit: &Limit) -> bool {
    use tollgate_limit::kept::Terms;
    !matches!(limit.terms(1, None), Some(Terms::Log(_) | Terms::WarmUp(_)))
}

#[test]
fn c3_every_algorithm_takes_back_in_the_store_what_it_does_in_the_library() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let mut client = server.client();
        let scripts = Scripts::load(&mut client);
        let mut asked = (client, scripts);
        let able = cases().into_iter().filter(|case| takes_back(&case.limit));
        for (seed, case) in (2_000_000..).step_by(10).zip(able) {
            for turn in 0..6 {
                run_with_refunds(kind, case, seed + turn, &mut asked);
            }
        }
    }
}

#[test]
fn logs_and_warm_ups_are_left_alone_by_who_gives_back() {
    let server = Server::start(Kind::Redis, &[]);
    let mut client = server.client();
    let scripts = Scripts::load(&mut client);
    let bucket = case(Limit::token_bucket(quota("10 per second")), "10 per second");
    for (seed, case) in (3_000_000..).zip(cases().into_iter().filter(|case| !takes_back(&case.limit))) {
        let asks = [(seed, case.limit), (seed + 500_000, bucket.limit)].map(|(number, limit)| Ask {
            key: key(number),
            limit,
            cost: 1,
            max_wait: None,
            says: Says::Refuse,
        });
        let (call, refund) = (Call::new(asks.to_vec()).unwrap(), Refund::new(asks.to_vec()).unwrap());
        let (now, name) = (1_800_000_000_000_000, asks[0].key.name("tg:"));
        client.send(&scripts.command(&call, now));
        assert!(call.read(&client.reply()).unwrap().iter().all(Decision::is_allowed), "{:?}", case.limit);
        let before = client.ask(&["DUMP", &name]);
        client.send(&scripts.refund(&refund, now));
        assert_eq!(refund.read(&client.reply()), Ok(vec![0, 1]), "{:?}", case.limit);
        assert_eq!(client.ask(&["DUMP", &name]), before);
    }
}

/// Somebody who takes tokens and uses them, and others who take and give back a little later. What was used and when.
fn run_with_ghosts(case: Case, seed: u64, (client, scripts): &mut (Client, Scripts)) -> (Vec<(u64, u64)>, u64, u64) {
    let mut history = History::new(case, seed);
    let (mut used, mut ghosts, mut taken, mut given) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..600 {
        history.now += history.random.below(40_000);
        let cost = 1 + history.random.below(3);
        let ask = Ask { key: key(seed), limit: case.limit, cost, max_wait: None, says: Says::Refuse };
        let call = Call::new(vec![ask.clone()]).unwrap();
        client.send(&scripts.command(&call, history.now));
        if call.read(&client.reply()).unwrap()[0].is_allowed() {
            match history.random.below(2) {
                0 => used.push((history.now, cost)),
                _ => ghosts.push((history.now, ask)),
            }
        }
        history.now += history.random.below(20_000);
        while ghosts.len() as u64 > history.random.below(4) {
            let (at, ask) = ghosts.swap_remove(history.random.below(ghosts.len() as u64) as usize);
            taken += ask.cost;
            let refund = Refund::of_taken_at(vec![ask], Time::from_nanos(at * 1_000)).unwrap();
            client.send(&scripts.refund(&refund, history.now));
            given += refund.read(&client.reply()).unwrap()[0];
        }
    }
    (used, taken, given)
}

#[test]
fn what_is_given_back_late_lets_nobody_through_twice() {
    let server = Server::start(Kind::Redis, &[]);
    let mut client = server.client();
    let scripts = Scripts::load(&mut client);
    let mut asked = (client, scripts);
    let bucket = |text| (Limit::token_bucket(quota(text)), text);
    let limits = [bucket("40 per second burst 20"), bucket("33 per second burst 20")];
    let limits = [&limits[..], &[(Limit::sliding_window(quota("40 per second")), "40 per second")]].concat();
    let mut share = (0, 0);
    for (seed, (limit, text)) in (4_000_000..).zip(limits.repeat(20)) {
        let (case, rate) = (case(limit, text), quota(text).count());
        let (used, taken, given) = run_with_ghosts(case, seed, &mut asked);
        share = (share.0 + given, share.1 + taken);
        for (index, (start, _)) in used.iter().enumerate() {
            let mut sum = 0;
            for (at, cost) in &used[index..] {
                sum += cost;
                let most = case.most as f64 + rate as f64 * (at - start) as f64 / 1e6;
                assert!(sum as f64 <= most, "{:?}: {sum} of {most} from {start} to {at}", case.limit);
            }
        }
    }
    let window = case(Limit::fixed_window(quota("40 per second")), "40 per second");
    for seed in 4_001_000..4_001_020 {
        let (used, taken, given) = run_with_ghosts(window, seed, &mut asked);
        share = (share.0 + given, share.1 + taken);
        for (start, _) in &used {
            let of_window = used.iter().filter(|(at, _)| at / 1_000_000 == start / 1_000_000);
            assert!(of_window.map(|(_, cost)| cost).sum::<u64>() <= 40, "{start}");
        }
    }
    println!("{} of {} given back", share.0, share.1);
    assert!(share.0 > share.1 / 2, "{share:?}");
}

/// Runs a part of the scripts, followed by some more Lua, and returns the numbers that it answers.
fn run_part(client: &mut Client, more: &str, arguments: &[u64]) -> Vec<u64> {
    let source = LIMITS.source();
    let start = source.find("-- Multiplication beyond").unwrap();
    let end = source.find("-- A bucket whose tokens do not").unwrap();
    let words: Vec<String> = arguments.iter().map(u64::to_string).collect();
    let part = format!("{}{more}", &source[start..end]);
    let mut command = vec!["EVAL", &part, "0"];
    command.extend(words.iter().map(String::as_str));
    match client.ask(&command) {
        Reply::Integer(number) => vec![number.unsigned_abs()],
        Reply::Array(numbers) => {
            numbers.iter().map(|n| if let Reply::Integer(n) = n { n.unsigned_abs() } else { panic!("{n:?}") }).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Numbers of up to so many bits, also those next to powers of two.
fn numbers(random: &mut Random, bits: u32) -> u64 {
    let number = random.next() >> (64 - bits) >> random.below(u64::from(bits));
    let edge = 1_u64 << random.below(u64::from(bits));
    [number, number, edge, edge - 1, edge | 1][random.below(5) as usize]
}

#[test]
fn products_beyond_what_a_double_holds_are_compared_exactly() {
    let server = Server::start(Kind::Redis, &[]);
    let mut client = server.client();
    let mut random = Random(1);
    for _ in 0..3_000 {
        let [a, b, c] = [(); 3].map(|()| numbers(&mut random, 52).max(1));
        // Mostly so that both products are nearly the same.
        let d = (u128::from(a) * u128::from(b) / u128::from(c)).min(1 << 52) as u64 + random.below(3);
        let [a, b, c, d] = if random.below(2) == 0 { [a, b, c, d] } else { [c, d, a, b] };
        let more =
            "return no_more(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])) and 1 or 0";
        let expected = u64::from(u128::from(a) * u128::from(b) <= u128::from(c) * u128::from(d));
        assert_eq!(run_part(&mut client, more, &[a, b, c, d]), [expected], "{a} * {b} <= {c} * {d}");
    }
}

#[test]
fn moments_are_turned_into_units_exactly() {
    let server = Server::start(Kind::Redis, &[]);
    let mut client = server.client();
    let mut random = Random(2);
    for _ in 0..3_000 {
        let nanos = numbers(&mut random, 62);
        let shift = [0, 10][random.below(2) as usize];
        // Between a half and one.
        let factor = (1 << 62) + numbers(&mut random, 62);
        let ticks = (nanos << shift) & (u64::MAX >> 1);
        let units = ((u128::from(ticks) * u128::from(factor)) >> 63) as u64;
        let limb = |place: u32| (factor >> (21 * place)) & ((1 << 21) - 1);
        let arguments = [nanos / 1_000_000_000, nanos % 1_000_000_000, 1 << shift, factor >> 42, limb(1), limb(0)];
        let more = "return { units(tonumber(ARGV[1]), tonumber(ARGV[2]), 3) }";
        assert_eq!(run_part(&mut client, more, &arguments), [units / 1_000_000_000, units % 1_000_000_000]);
    }
}

/// All or nothing, as the engine does it for limits of its own.
fn expected_together(cells: &[Cell], asks: &[Ask], now: Time) -> Vec<Decision> {
    let each = || cells.iter().zip(asks);
    let looked: Vec<Decision> = each().map(|(cell, ask)| cell.decide(&ask.limit, Op::Peek(ask.cost), now)).collect();
    let fits = |says: Says| {
        asks.iter().zip(&looked).filter(move |(ask, _)| ask.says == says).map(|(_, said)| said.is_allowed())
    };
    let quotas_pass = fits(Says::Quota).count() == 0 || fits(Says::Quota).any(|fits| fits);
    let passes = quotas_pass && fits(Says::Refuse).all(|fits| fits);
    let decide = |((cell, ask), said): ((&Cell, &Ask), &Decision)| match said.is_allowed() {
        true if !passes => *said,
        false if !ask.limit.counts_refusals() => *said,
        _ => cell.decide(&ask.limit, Op::Take(ask.cost), now),
    };
    each().zip(&looked).map(decide).collect()
}

#[test]
fn c3_all_limits_of_a_request_are_taken_or_none() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let mut client = server.client();
        let scripts = Scripts::load(&mut client);
        let cases: Vec<Case> = cases().into_iter().filter(|case| case.period <= Duration::from_secs(60)).collect();
        for seed in 1_000..1_400 {
            let mut random = Random(seed);
            let mut pick = || cases[random.below(cases.len() as u64) as usize];
            let chosen = [pick(), pick(), pick(), pick()];
            let cells: Vec<Cell> = chosen.iter().map(|_| Cell::default()).collect();
            let mut history = History::new(chosen[0], seed);
            let (mut bytes, mut steps) = (Vec::new(), Vec::new());
            for _ in 0..60 {
                history.pass();
                let asks: Vec<Ask> = (0_u64..)
                    .zip(chosen)
                    .map(|(number, case)| Ask {
                        key: key(seed * 10 + number),
                        limit: case.limit,
                        cost: History { case, random: Random(history.random.next()), now: 0 }.cost(),
                        max_wait: None,
                        says: [Says::Refuse, Says::Refuse, Says::Quota, Says::Shadow][history.random.below(4) as usize],
                    })
                    .collect();
                let decisions = expected_together(&cells, &asks, history.time());
                let call = Call::new(asks).unwrap();
                bytes.extend(scripts.command(&call, history.now));
                steps.push((call, decisions));
            }
            client.send(&bytes);
            for (call, decisions) in steps {
                let reply = client.reply();
                assert_same(&call, &reply, &decisions, &format!("{kind:?}, seed {seed}"));
            }
        }
    }
}

/// How many single tokens are let through of so many asked for in a time.
fn let_through(
    server: &mut (Client, Scripts),
    case: Case,
    key: Fingerprint,
    (from, lasts, asks): (u64, u64, u64),
) -> u64 {
    let (client, scripts) = server;
    let ask = Ask { key, limit: case.limit, cost: 1, max_wait: None, says: Says::Refuse };
    let call = Call::new(vec![ask]).unwrap();
    let bytes: Vec<u8> = (0..asks).flat_map(|number| scripts.command(&call, from + lasts * number / asks)).collect();
    client.send(&bytes);
    let decisions = (0..asks).map(|_| call.read(&client.reply()).unwrap());
    decisions.filter(|decisions| decisions[0].is_allowed()).count() as u64
}

#[test]
fn a_clock_that_jumps_costs_a_burst_and_locks_nobody_out() {
    const YEAR: u64 = 365 * 86_400_000_000;
    let server = Server::start(Kind::Redis, &[]);
    let mut client = server.client();
    let scripts = Scripts::load(&mut client);
    let mut asked = (client, scripts);
    // Those that are booked far ahead let through what is for later.
    let is_small = |case: &Case| {
        let is_short = case.period <= Duration::from_secs(60) && case.limit.patience(1, None) <= case.period;
        is_short && case.most <= 20
    };
    for (number, case) in (0_u64..).zip(cases().into_iter().filter(is_small)) {
        let period = case.period.as_micros() as u64;
        let (start, most) = (1_800_000_000_000_000, case.most);
        for (turn, jump) in (0_u64..).zip([YEAR, 1_000_000, 1]) {
            let key = key(900_000 + number * 10 + turn);
            let before = let_through(&mut asked, case, key, (start, period * 2, 200));
            let after = let_through(&mut asked, case, key, (start + period * 2 - jump, period * 8, 800));
            let story = format!("{:?}, back by {jump}: {before}, then {after}", case.limit);
            // A limit whose gap is longer than its period, or that counts refusals, may let one through and no more.
            assert!(before >= 1, "{story}");
            assert!(after >= 1 || case.limit.counts_refusals(), "{story}");
            assert!(after <= most * 10 + 1, "{story}");
        }
        let key = key(900_000 + number * 10 + 5);
        let_through(&mut asked, case, key, (start, period, 100));
        let after = let_through(&mut asked, case, key, (start + YEAR, 1, 50));
        // All there is, and what can be booked ahead.
        assert!(after <= most * 2 + 1, "{:?}, ahead: {after}", case.limit);
    }
}

#[test]
fn whatever_a_store_says_is_an_answer_or_none() {
    let mut random = Random(3);
    let number = |random: &mut Random| match random.below(8) {
        0 => u64::MAX.to_string(),
        1 => "0".to_owned(),
        2 => ["NaN", "inf", "-1", "1e300", ""][random.below(5) as usize].to_owned(),
        3 => (i64::MAX as u64).to_string(),
        4 => 1_800_000_000_u64.to_string(),
        5 => 1_800_000_000_000_000_u64.to_string(),
        _ => (random.next() >> random.below(64)).to_string(),
    };
    for case in cases() {
        let mut history = History::new(case, 1);
        for _ in 0..500 {
            let (cost, max_wait) = (history.cost(), history.max_wait());
            let cost = if random.below(9) == 0 { u64::MAX >> random.below(64) } else { cost };
            let ask = Ask { key: key(1), limit: case.limit, cost, max_wait, says: Says::Refuse };
            let Some(call) = Call::new(vec![ask]) else { continue };
            let kept: Vec<String> = (0..1 + random.below(4)).map(|_| number(&mut random)).collect();
            let text = |text: String| Reply::Text(text.into_bytes());
            let mut flag = || Reply::Integer((random.next() % 2) as i64);
            let (passes, fits) = (flag(), flag());
            let time = [text(number(&mut random)), text(number(&mut random))];
            let reply = Reply::Array([&time[..], &[passes, fits, text(kept.join(":"))]].concat());
            // What matters is that it comes back.
            let _ = call.read(&reply);
        }
    }
}

#[test]
fn sums_that_come_out_even_are_carried() {
    let server = Server::start(Kind::Redis, &[]);
    let mut client = server.client();
    let scripts = Scripts::load(&mut client);
    // At half past a second, half a second's worth: the bucket is full again at a whole second.
    for (number, text) in (0_u64..).zip(["10 per second", "512 per second", "512 per second burst 1024"]) {
        let quota = quota(text);
        let cell = Cell::default();
        for (step, cost) in [quota.count() / 2, 1, 0, quota.count() / 2].into_iter().enumerate() {
            let now = 1_800_000_000_500_000 + 250_000 * step as u64;
            let limit = Limit::token_bucket(quota);
            let ask = Ask { key: key(800_000 + number), limit, cost, max_wait: None, says: Says::Refuse };
            let decision = expected(&cell, &ask, Time::from_nanos(now * 1_000));
            let call = Call::new(vec![ask]).unwrap();
            client.send(&scripts.command(&call, now));
            assert_same(&call, &client.reply(), &[decision], text);
        }
    }
}

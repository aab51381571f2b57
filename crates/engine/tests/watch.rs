//! Rules in files that change: in place, by rename, one by one in a directory, and as Kubernetes swaps them.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::disallowed_methods, reason = "files change when they do")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Event, LoadError, Reason, Request, Tollgate, Value, Watch};

const OFTEN: Duration = Duration::from_millis(2);

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tollgate-watch-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes to another file and renames that.
    fn rename(&self, name: &str, text: &str) {
        self.write("new", text);
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// What the observer was told.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|told| told.starts_with(what)).count()
    }
}

fn open(path: &Path) -> (Tollgate, Told) {
    let told = Told::default();
    let book = told.clone();
    let observe = move |event: &Event<'_>| match event {
        Event::RulesReplaced { version } => book.0.lock().unwrap().push(format!("replaced {version}")),
        Event::RulesRefused { mistakes } => book.0.lock().unwrap().push(format!("refused {mistakes}")),
        Event::RulesUnreadable { error, .. } => book.0.lock().unwrap().push(format!("unreadable {error}")),
        _ => {}
    };
    (Tollgate::builder().observer(observe).open(path).unwrap(), told)
}

fn watched(path: &Path) -> (Tollgate, Told, Watch) {
    let (tollgate, told) = open(path);
    let watch = tollgate.watch_every(OFTEN);
    (tollgate, told, watch)
}

/// The rules of one namespace: so many per hour for each user.
fn rules(namespace: &str, count: u64) -> String {
    format!("namespace: {namespace}\nrules: [{{ name: a, key: [user], limits: [{count} per hour] }}]\n")
}

/// How much is allowed; `None` where nobody has rules for that.
fn limit(tollgate: &Tollgate, namespace: &str) -> Option<u64> {
    let attributes = [("user", Value::Text("bob"))];
    let verdict = tollgate.peek(&Request::new(namespace, &attributes));
    verdict.deciding().map(|check| check.decision.limit)
}

#[track_caller]
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "still waiting until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the files have been looked at a few times more, so that whatever was to be seen was seen.
fn let_it_look(folder: &Folder, tollgate: &Tollgate) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let probe = Folder::new();
    let count = 1 + NEXT.fetch_add(1, Ordering::Relaxed);
    probe.write("a.yaml", &rules("probe", count));
    let (other, told, _watch) = watched(&probe.path("a.yaml"));
    for round in 0..3 {
        probe.rename("a.yaml", &rules("probe", count + round + 100));
        wait_until("the other one is seen", || told.count("replaced") as u64 > round);
    }
    assert!(limit(&other, "probe").is_some() && folder.0.exists() && tollgate.path().is_some());
}

#[test]
fn r5_a_file_that_is_changed_in_place_is_read_again_and_buckets_stay() {
    let folder = Folder::new();
    folder.write("rules.yaml", &rules("n", 10));
    let (tollgate, _, _watch) = watched(&folder.path("rules.yaml"));
    let attributes = [("user", Value::Text("bob"))];
    let request = Request::new("n", &attributes).with_cost(4);
    assert!(tollgate.check(&request).is_allowed());
    folder.write("rules.yaml", &rules("n", 2000));
    wait_until("the new limit is in force", || limit(&tollgate, "n") == Some(2_000));
    assert_eq!(tollgate.peek(&request).remaining(), Some(1_996));
}

#[test]
fn a_file_that_is_renamed_into_place_is_seen_though_length_and_time_are_the_same() {
    let folder = Folder::new();
    folder.write("rules.yaml", &rules("n", 10));
    let (tollgate, _, _watch) = watched(&folder.path("rules.yaml"));
    let modified = fs::metadata(folder.path("rules.yaml")).unwrap().modified().unwrap();
    for count in [20, 30, 40] {
        folder.write("new", &rules("n", count));
        fs::File::options().write(true).open(folder.path("new")).unwrap().set_modified(modified).unwrap();
        fs::rename(folder.path("new"), folder.path("rules.yaml")).unwrap();
        wait_until("it is in force", || limit(&tollgate, "n") == Some(count));
    }
}

#[test]
fn what_changed_between_reading_and_watching_is_seen() {
    let folder = Folder::new();
    folder.write("rules.yaml", &rules("n", 10));
    let (tollgate, _) = open(&folder.path("rules.yaml"));
    folder.rename("rules.yaml", &rules("n", 20));
    let _watch = tollgate.watch_every(OFTEN);
    wait_until("it is in force", || limit(&tollgate, "n") == Some(20));
}

#[test]
fn files_that_did_not_change_are_not_read_again() {
    let folder = Folder::new();
    folder.write("rules.yaml", &rules("n", 10));
    let (tollgate, told, _watch) = watched(&folder.path("rules.yaml"));
    let_it_look(&folder, &tollgate);
    assert_eq!((told.count(""), tollgate.engine().version()), (0, 1), "{told:?}");
}

#[test]
fn files_come_and_go_in_a_directory() {
    let folder = Folder::new();
    folder.write("a.yaml", &rules("a", 10));
    folder.write("notes.txt", "not: [rules");
    folder.write(".hidden.yaml", "not: [rules");
    let (tollgate, told, _watch) = watched(&folder.0);
    assert_eq!((limit(&tollgate, "a"), limit(&tollgate, "b")), (Some(10), None));
    folder.rename("b.yml", &rules("b", 20));
    wait_until("b is there", || limit(&tollgate, "b") == Some(20));
    folder.rename("c.json", r#"{"namespace": "c", "rules": [{"name": "a", "key": [], "limits": ["30 per hour"]}]}"#);
    wait_until("c is there", || limit(&tollgate, "c") == Some(30));
    fs::remove_file(folder.path("a.yaml")).unwrap();
    wait_until("a is gone", || limit(&tollgate, "a").is_none());
    assert_eq!((limit(&tollgate, "b"), limit(&tollgate, "c")), (Some(20), Some(30)));
    // From one file to another.
    fs::rename(folder.path("b.yml"), folder.path("z.yaml")).unwrap();
    let_it_look(&folder, &tollgate);
    assert_eq!(limit(&tollgate, "b"), Some(20));
    assert_eq!(told.count("refused"), 0, "{told:?}");
    // Twice the same namespace is a mistake of the whole.
    folder.rename("y.yaml", &rules("b", 99));
    wait_until("the observer is told", || told.count("refused") == 1);
    assert_eq!(limit(&tollgate, "b"), Some(20));
}

#[test]
fn a_directory_that_is_emptied_does_not_let_everything_through() {
    let folder = Folder::new();
    folder.write("a.yaml", &rules("a", 10));
    let (tollgate, told, _watch) = watched(&folder.0);
    fs::remove_file(folder.path("a.yaml")).unwrap();
    wait_until("the observer is told", || told.count("unreadable") == 1);
    assert_eq!(limit(&tollgate, "a"), Some(10));
    assert!(matches!(Tollgate::open(&folder.0), Err(LoadError::Unreadable { .. })));
    folder.rename("a.yaml", &rules("a", 20));
    wait_until("it is in force", || limit(&tollgate, "a") == Some(20));
    // Who wants no rules can say so.
    folder.rename("a.yaml", "namespace: a\nrules: []\n");
    wait_until("there are none", || limit(&tollgate, "a").is_none());
    assert_eq!(tollgate.peek(&Request::new("a", &[])).reason(), Reason::NoRule);
}

/// Lays out a `ConfigMap` as the kubelet does: `rules.yaml` → `..data/rules.yaml`, `..data` → `..<time>`.
fn publish(folder: &Folder, time: &str, files: &[(&str, String)]) {
    let version = folder.path(&format!("..{time}"));
    fs::create_dir(&version).unwrap();
    for (name, text) in files {
        fs::write(version.join(name), text).unwrap();
    }
    let before = fs::read_link(folder.path("..data")).ok();
    symlink(format!("..{time}"), folder.path("..data_tmp")).unwrap();
    fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
    for (name, _) in files {
        if fs::symlink_metadata(folder.path(name)).is_err() {
            symlink(Path::new("..data").join(name), folder.path(name)).unwrap();
        }
    }
    for entry in fs::read_dir(&folder.0).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.starts_with("..") && files.iter().all(|(known, _)| *known != name) {
            fs::remove_file(folder.path(&name)).unwrap();
        }
    }
    before.into_iter().for_each(|before| fs::remove_dir_all(folder.0.join(before)).unwrap());
}

#[test]
fn r5_config_maps_are_followed_as_a_directory_and_as_a_file() {
    let folder = Folder::new();
    publish(&folder, "2026_01", &[("a.yaml", rules("a", 10)), ("b.yaml", rules("b", 10))]);
    let (whole, told, _watch) = watched(&folder.0);
    let (single, _, _other_watch) = watched(&folder.path("a.yaml"));
    assert_eq!((limit(&whole, "b"), limit(&single, "b")), (Some(10), None));
    for (round, time) in ["2026_02", "2026_03", "2026_04"].into_iter().enumerate() {
        let count = 20 + round as u64;
        publish(&folder, time, &[("a.yaml", rules("a", count)), ("c.yaml", rules("c", count))]);
        wait_until("the directory is seen", || limit(&whole, "a") == Some(count) && limit(&whole, "c") == Some(count));
        wait_until("the file is seen", || limit(&single, "a") == Some(count));
        assert_eq!(limit(&whole, "b"), None);
    }
    assert_eq!(told.count("refused"), 0, "{told:?}");
}

#[test]
fn r6_wrong_files_leave_the_rules_as_they_were_and_are_told_of_once() {
    let folder = Folder::new();
    folder.write("rules.yaml", &rules("n", 10));
    let (tollgate, told, _watch) = watched(&folder.path("rules.yaml"));
    folder.rename("rules.yaml", "namespace: n\nrules: [{ name: a, key: [user], limits: [10 per our] }]");
    wait_until("the observer is told", || told.count("refused") == 1);
    let_it_look(&folder, &tollgate);
    assert_eq!((told.count("refused"), limit(&tollgate, "n")), (1, Some(10)), "{told:?}");
    assert!(matches!(tollgate.reload(), Err(LoadError::Wrong(_))));
    assert_eq!(limit(&tollgate, "n"), Some(10));
    // A file that was cut off, as by a disk that is full or in the midst of writing, is wrong, too.
    folder.rename("rules.yaml", "");
    wait_until("the observer is told", || told.count("refused") == 3);
    assert_eq!(limit(&tollgate, "n"), Some(10));
    folder.rename("rules.yaml", &rules("n", 20));
    wait_until("it is in force", || limit(&tollgate, "n") == Some(20));
    assert_eq!(tollgate.engine().version(), 2);
}

#[test]
fn r6_unreadable_files_leave_the_rules_as_they_were_and_are_told_of_once() {
    let folder = Folder::new();
    folder.write("rules.yaml", &rules("n", 10));
    let (tollgate, told, _watch) = watched(&folder.path("rules.yaml"));
    // No UTF-8, as root may read anything else.
    fs::write(folder.path("new"), [0xff, 0xfe, 0x00]).unwrap();
    fs::rename(folder.path("new"), folder.path("rules.yaml")).unwrap();
    wait_until("the observer is told", || told.count("unreadable") == 1);
    let_it_look(&folder, &tollgate);
    assert_eq!((told.count("unreadable"), limit(&tollgate, "n")), (1, Some(10)), "{told:?}");
    folder.rename("rules.yaml", &rules("n", 20));
    wait_until("it is in force", || limit(&tollgate, "n") == Some(20));
}

#[test]
fn r6_a_file_that_vanishes_is_told_of_once_and_seen_when_it_comes_back() {
    let folder = Folder::new();
    folder.write("rules.yaml", &rules("n", 10));
    let (tollgate, told, _watch) = watched(&folder.path("rules.yaml"));
    for (times, count) in [(1, 20), (2, 30)] {
        fs::remove_file(folder.path("rules.yaml")).unwrap();
        wait_until("the observer is told", || told.count("unreadable") == times);
        let_it_look(&folder, &tollgate);
        assert_eq!(told.count("unreadable"), times, "{told:?}");
        assert!(limit(&tollgate, "n").is_some());
        folder.rename("rules.yaml", &rules("n", count));
        wait_until("it is in force", || limit(&tollgate, "n") == Some(count));
    }
    // A link that leads nowhere is no different.
    fs::remove_file(folder.path("rules.yaml")).unwrap();
    symlink("nowhere", folder.path("rules.yaml")).unwrap();
    wait_until("the observer is told", || told.count("unreadable") == 3);
    assert_eq!(limit(&tollgate, "n"), Some(30));
}

#[test]
fn watching_ends_when_it_is_dropped() {
    let folder = Folder::new();
    folder.write("rules.yaml", &rules("n", 10));
    let (tollgate, _, watch) = watched(&folder.path("rules.yaml"));
    drop(watch);
    folder.rename("rules.yaml", &rules("n", 20));
    let_it_look(&folder, &tollgate);
    assert_eq!(limit(&tollgate, "n"), Some(10));
    tollgate.reload().unwrap();
    assert_eq!(limit(&tollgate, "n"), Some(20));
}

#[test]
fn rules_that_came_from_no_file_are_left_alone() {
    let tollgate = Tollgate::from_yaml(&rules("n", 10)).unwrap();
    let _watch = tollgate.watch_every(OFTEN);
    tollgate.reload().unwrap();
    assert_eq!((tollgate.path(), limit(&tollgate, "n")), (None, Some(10)));
}

//! The trial and `authorize` agree about everybody.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::accounts::{
    AccountAct, AccountId, AppVisitor, EntryCount, Groups, ListedAccounts, MOST_NAMED, Phc, Profile,
    ProvedFactors, Roles, SessionId, Username,
};
use crate::clock::{Clock, Micros};
use crate::config::{AppFactor, AppPart, PathPattern, Who};
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;
use crate::gate::{AppRequest, Verdict, authorize, may_use};
use crate::sms::Phone;

const NOW: Micros = Micros(1_800_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const HOSTS: [&str; 4] = ["a.example", "b.example", "c.example", "c.example:8443"];
const GROUPS: [&str; 4] = ["staff", "on-call", "staff-2", "nobody-is-in-it"];
/// To each of them every part applies.
const ODD: [&str; 4] = ["/%61dmin", "/a;b", "/a\\b", "//elsewhere"];
/// Paths of parts, each with a path that it covers.
const PATHS: [(&str, &str); 7] = [
    ("/admin/*", "/admin/some/page"),
    ("/ADMIN/keys", "/ADMIN/keys"),
    ("/admin/users/*", "/admin/users/1"),
    ("/keys", "/keys"),
    ("/admin", "/admin"),
    ("/*", "/elsewhere"),
    ("/static/*", "/static/a.css"),
];

struct Dice(Entropy);

impl Dice {
    fn below(&self, most: usize) -> usize {
        u64::from_be_bytes(self.0.bytes()) as usize % most
    }

    fn some<T>(&self, most: usize, draw: impl Fn() -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| draw()).collect()
    }

    fn who(&self) -> Vec<Who> {
        self.some(3, || match self.below(8) {
            0 => Who::Everyone,
            1..=4 => Who::Group(GROUPS[self.below(GROUPS.len())].to_owned()),
            _ => Who::Name(format!("user-{:02}", self.below(34))),
        })
    }

    fn age(&self) -> Option<Duration> {
        (self.below(3) == 0).then(|| HOUR * (1 + self.below(3) as u32))
    }

    fn path(&self) -> PathPattern {
        PathPattern::parse(PATHS[self.below(PATHS.len())].0).unwrap()
    }

    fn part(&self) -> AppPart {
        let who = (self.below(3) > 0).then(|| self.who());
        AppPart {
            path: self.path(),
            who,
            signed_in_within: self.age(),
            password_within: self.age(),
            ..AppPart::default()
        }
    }

    fn apps(&self) -> Apps {
        let app = |name: usize| App {
            name: format!("app-{name}"),
            who: self.who(),
            public: self.some(2, || self.path()),
            parts: self.some(2, || self.part()),
            ..App::default()
        };
        let mut apps = [app(0), app(1)];
        for host in HOSTS {
            if let Some(app) = apps.get_mut(self.below(3)) {
                app.hosts.push(host.to_owned());
            }
        }
        Apps::new(apps.into_iter().filter(|app| !app.hosts.is_empty()).collect())
    }
}

/// An application that nobody may use.
fn wiki() -> App {
    App { name: "wiki".to_owned(), hosts: vec!["wiki.example".to_owned()], ..App::default() }
}

/// Everybody who may sign in, as `authorize` sees them an instant after they did.
async fn people(accounts: &Accounts, dice: &Dice) -> Vec<AppVisitor> {
    let mut people = Vec::new();
    for number in 0..32 {
        let login = Username::parse(&format!("user-{number:02}")).unwrap();
        let has_password = number % 5 > 0;
        let created = if has_password {
            accounts.create(&login, &Phc::stored("x".into()), Roles::default()).await
        } else {
            let phone = Phone::parse(&format!("+86138001380{number:02}"), "CN").unwrap();
            accounts.create_with_phone(&login, None, &phone).await
        };
        let account = created.unwrap();
        let groups = dice.some(3, || GROUPS[dice.below(3)]);
        let groups = Groups::parse(groups).unwrap();
        accounts.change_groups(account.id, false, |_| groups.clone()).await.unwrap();
        if let Some(act) = [AccountAct::Disable, AccountAct::Delete].get(number % 9) {
            accounts.change(account.id, *act, false).await.unwrap();
            continue;
        }
        people.push(AppVisitor {
            session: SessionId::random(&dice.0),
            account: account.id,
            login,
            groups,
            profile: Profile::default(),
            must_change_password: false,
            signed_in_at: NOW,
            verified_at: if has_password { NOW } else { Micros(0) },
            proved_at: NOW,
            proved: ProvedFactors::default(),
            setup: None,
            idle_until: NOW.plus(HOUR),
        });
    }
    people
}

fn may(apps: &Apps, host: &str, target: &str, visitor: &AppVisitor) -> bool {
    // What is public is only read.
    let asked = AppRequest { method: "POST", target };
    apps.at(host).is_some_and(|(_, app)| authorize(app, asked, Some(visitor), NOW) == Verdict::Allowed)
}

fn reads(apps: &Apps, host: &str, target: &str) -> bool {
    let asked = AppRequest { method: "GET", target };
    apps.at(host).is_some_and(|(_, app)| authorize(app, asked, None, NOW) == Verdict::Public)
}

#[derive(PartialEq)]
enum PathScope {
    Pattern(String),
    Odd,
    Others,
}

impl PathScope {
    fn is_in(&self, preview: &PathPreview) -> bool {
        match self {
            Self::Pattern(path) => preview.paths.contains(path),
            Self::Odd => preview.odd,
            Self::Others => preview.others,
        }
    }
}

/// Who loses and who gains a path of a host; nobody, if it is not named.
fn entry_of(trial: &AppsComparison, host: &str, scope: &PathScope) -> EntryChange {
    let group = trial.hosts.iter().find(|it| it.hosts.iter().any(|listed| listed == host));
    let path = group.and_then(|it| it.changes.iter().find(|path| scope.is_in(path))).cloned();
    path.map(|path| EntryChange { loses: path.loses, gains: path.gains }).unwrap_or_default()
}

fn same(told: &EntryCount, judged: &[&AppVisitor], what: &str) {
    assert_eq!(told.count, judged.len() as u64, "{what}");
    let named: Vec<(&str, &str)> = told.first.iter().map(|it| (it.login.as_str(), it.id.as_str())).collect();
    let ids: Vec<String> = judged.iter().map(|it| it.account.to_string()).collect();
    let expected: Vec<(&str, &str)> =
        judged.iter().zip(&ids).map(|(it, id)| (it.login.as_str(), id.as_str())).take(MOST_NAMED).collect();
    assert_eq!(named, expected, "{what}");
}

on_both_databases!(
    the_judge_and_the_trial_agree_about_everybody,
    too_many_differences_are_counted_as_such,
    what_is_asked_for_is_told,
    as_many_groups_as_the_database_takes_are_counted,
    a_host_that_comes_or_goes_has_no_ages_and_closes_nothing,
    what_changes_alike_for_many_paths_is_said_once,
    names_and_groups_that_nobody_has_are_found,
    as_many_and_as_long_lists_as_the_configuration_takes_are_counted,
    a_client_is_compared_beside_the_hosts_of_its_application,
);

fn accounts_in(db: crate::db::Db) -> Accounts {
    Accounts::new(db, Clock::manual(NOW), Entropy::Os)
}

async fn the_judge_and_the_trial_agree_about_everybody(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    let dice = Dice(Entropy::seeded(11));
    let people = people(&accounts, &dice).await;
    let (mut named, mut moved) = (0, BTreeMap::<bool, u32>::new());
    for round in 0..120 {
        let (before, after) = (dice.apps(), dice.apps());
        let trial = compare_apps(&accounts, &before, &after).await.unwrap();
        assert_eq!(trial.uncounted, 0);
        for host in HOSTS {
            let of_host = |apps: &Apps| -> Vec<PathPattern> {
                let app = apps.at(host).map(|(_, app)| app.clone());
                app.iter().flat_map(|app| app.parts.iter().map(|part| part.path.clone())).collect()
            };
            let patterns = [of_host(&before), of_host(&after)].concat();
            let listed = |path: &str| patterns.iter().any(|pattern| pattern.to_string() == path);
            let parts = PATHS.into_iter().filter(|(path, _)| listed(path));
            let patterns_of_parts = parts.map(|(path, target)| (PathScope::Pattern(path.to_owned()), target));
            let odd = ODD.into_iter().filter(|_| !patterns.is_empty()).map(|target| (PathScope::Odd, target));
            for (scope, target) in patterns_of_parts.chain(odd).chain([(PathScope::Others, "/of-no-part")]) {
                let what = format!("round {round}, {host}, {target}: {before:?} {after:?}");
                let entry = entry_of(&trial, host, &scope);
                let change = |from: &Apps, to: &Apps| -> Vec<&AppVisitor> {
                    let moves = |it: &&AppVisitor| may(from, host, target, it) && !may(to, host, target, it);
                    people.iter().filter(moves).collect()
                };
                let (loses, gains) = (change(&before, &after), change(&after, &before));
                same(&entry.loses, &loses, &what);
                same(&entry.gains, &gains, &what);
                named += entry.loses.first.len() + entry.gains.first.len();
                let group = trial.hosts.iter().find(|it| it.hosts.iter().any(|listed| listed == host));
                let lists = |of: fn(&HostPreview) -> &Vec<String>| {
                    group.is_some_and(|it| of(it).iter().any(|it| PathScope::Pattern(it.clone()) == scope))
                };
                let (then, now) = (reads(&before, host, target), reads(&after, host, target));
                if scope != PathScope::Others {
                    assert_eq!(lists(|it| &it.opens), !then && now, "{what}");
                    let stays = after.at(host).is_some();
                    assert_eq!(lists(|it| &it.closes), then && !now && stays, "{what}");
                }
                *moved.entry(then != now).or_default() += 1;
            }
        }
    }
    assert!(named > 1_000 && moved.values().all(|count| *count > 20), "{named} {moved:?}");
}

async fn too_many_differences_are_counted_as_such(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    let app = |who: &str, parts: usize| App {
        who: vec![Who::Name(who.to_owned())],
        parts: (0..parts)
            .map(|number| AppPart {
                path: PathPattern::parse(&format!("/{number}")).unwrap(),
                who: Some(vec![Who::Group(format!("g{number}"))]),
                ..AppPart::default()
            })
            .collect(),
        ..wiki()
    };
    let apps = |who: &str, parts| Apps::new(vec![app(who, parts)]);
    let trial = compare_apps(&accounts, &apps("ada", 100), &apps("eve", 100)).await.unwrap();
    assert_eq!(trial.uncounted, 102 - MOST_COMPARED);
    // The same rules are counted once.
    let same = |who: &str| {
        let part = |path: usize| AppPart {
            path: PathPattern::parse(&format!("/{path}")).unwrap(),
            ..app(who, 1).parts[0].clone()
        };
        Apps::new(vec![App { parts: (0..100).map(part).collect(), ..app(who, 0) }])
    };
    assert_eq!(compare_apps(&accounts, &same("ada"), &same("eve")).await.unwrap().uncounted, 0);
    let huge = |who: &str| {
        let names = |_| Who::Name(format!("{who}-{}", AccountId::random(&Entropy::Os)));
        Apps::new(vec![App { who: (0..MOST_IN_A_STATEMENT).map(names).collect(), ..app(who, 0) }])
    };
    assert_eq!(compare_apps(&accounts, &huge("ada"), &Apps::default()).await.unwrap().uncounted, 0);
    assert_eq!(compare_apps(&accounts, &huge("ada"), &huge("eve")).await.unwrap().uncounted, 1);
}

async fn as_many_groups_as_the_database_takes_are_counted(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    let people = people(&accounts, &Dice(Entropy::seeded(5))).await;
    // The last of them is the one that somebody is in.
    let groups = |of: &str, count: usize| -> Vec<Who> {
        let empty = (1..count).map(|number| Who::Group(format!("{of}-{number}-{}", "x".repeat(50))));
        empty.chain([Who::Group(of.to_owned())]).collect()
    };
    let apps = |of: &str, count| Apps::new(vec![App { who: groups(of, count), ..wiki() }]);
    let only = |of: &str, but: &str| {
        people.iter().filter(|it| it.groups.contains(of) && !it.groups.contains(but)).count() as u64
    };
    let trial = compare_apps(&accounts, &apps("staff", 2_500), &apps("on-call", 2_500)).await.unwrap();
    assert_eq!(trial.uncounted, 0);
    let entry = entry_of(&trial, "wiki.example", &PathScope::Others);
    assert_eq!((entry.loses.count, entry.gains.count), (only("staff", "on-call"), only("on-call", "staff")));
    for (before, after) in [(2_500, 2_501), (0, 5_001), (40_000, 1)] {
        let (before, after) = (apps("staff", before), apps("on-call", after));
        assert_eq!(compare_apps(&accounts, &before, &after).await.unwrap().uncounted, 1);
    }
}

async fn a_host_that_comes_or_goes_has_no_ages_and_closes_nothing(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    people(&accounts, &Dice(Entropy::seeded(3))).await;
    let path = |text: &str| PathPattern::parse(text).unwrap();
    let part = AppPart {
        path: path("/admin/*"),
        signed_in_within: Some(HOUR),
        password_within: Some(HOUR),
        ..AppPart::default()
    };
    let wiki = Apps::new(vec![App {
        who: vec![Who::Everyone],
        public: vec![path("/health")],
        parts: vec![part],
        ..wiki()
    }]);
    for (before, after, opens) in [(&wiki, &Apps::default(), 0), (&Apps::default(), &wiki, 1)] {
        let trial = compare_apps(&accounts, before, after).await.unwrap();
        let [host] = &trial.hosts[..] else { panic!("{trial:?}") };
        assert_eq!((host.opens.len(), host.closes.len()), (opens, 0), "{host:?}");
        // Those with a password, and all.
        assert_eq!(host.changes.len(), 2, "{host:?}");
        for path in &host.changes {
            assert!(path.loses.count + path.gains.count > 0, "{path:?}");
            assert!(path.signed_in_within.is_unchanged() && path.password_within.is_unchanged(), "{path:?}");
        }
    }
}

async fn what_changes_alike_for_many_paths_is_said_once(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    let everybody = people(&accounts, &Dice(Entropy::seeded(3))).await.len() as u64;
    let apps = |who: Who, age: Option<Duration>| {
        let part = |number: u32| AppPart {
            path: PathPattern::parse(&format!("/{number}")).unwrap(),
            who: Some(vec![Who::Everyone]),
            signed_in_within: age.filter(|_| number == 7),
            ..AppPart::default()
        };
        Apps::new(vec![App { who: vec![who], parts: (0..200).map(part).collect(), ..wiki() }])
    };
    let nobody = || Who::Name("nobody-has-it".to_owned());
    let trial =
        compare_apps(&accounts, &apps(Who::Everyone, None), &apps(nobody(), Some(HOUR))).await.unwrap();
    let [host] = &trial.hosts[..] else { panic!("{trial:?}") };
    let [most, aged] = &host.changes[..] else { panic!("{host:?}") };
    assert_eq!((most.paths.len(), most.loses.count), (199, everybody));
    assert_eq!((most.others, &*most.paths[0], most.odd), (true, "/0", false));
    // To an odd path the part with an age applies, too.
    assert_eq!((aged.others, &aged.paths[..], aged.odd), (false, &["/7".to_owned()][..], true));
    assert_eq!((aged.loses.count, aged.signed_in_within.after), (everybody, Some(HOUR)));
}

async fn a_client_is_compared_beside_the_hosts_of_its_application(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    let people = people(&accounts, &Dice(Entropy::seeded(3))).await;
    let read = |text: &str| crate::config::parse("t.toml".as_ref(), text, &[]).unwrap().live.apps;
    let app = |who: &str, part: &str, uris: &str| {
        read(&format!(
            "[[apps]]\nname = 'dash'\nhosts = ['a.example']\nwho = ['group:{who}']\n\
             parts = [{{ path = '/*', {part} }}]\n[apps.oidc]\nredirect_uris = {uris}\n"
        ))
    };
    let (nobody, one) = ("who = []", "['https://a.example/cb']");
    let before = app("staff", nobody, one);
    let told = async |after: &Apps| compare_apps(&accounts, &before, after).await.unwrap().hosts;
    assert_eq!(told(&before).await, []);
    // What a part asks for is nothing to the client.
    let hosts = told(&app("staff", "signed_in_within = '1h'", one)).await;
    assert!(hosts.iter().all(|host| host.client.is_none()) && !hosts.is_empty(), "{hosts:?}");
    // The part lets nobody in at the host, whoever may use the application.
    let hosts = told(&app("on-call", nobody, one)).await;
    let [client] = &hosts[..] else { panic!("{hosts:?}") };
    let only = |of: &str, but: &str| {
        people.iter().filter(|it| it.groups.contains(of) && !it.groups.contains(but)).count() as u64
    };
    let [change] = &client.changes[..] else { panic!("{client:?}") };
    assert!(client.hosts.is_empty() && change.others && change.paths.is_empty());
    assert_eq!(
        (change.loses.count, change.gains.count),
        (only("staff", "on-call"), only("on-call", "staff"))
    );
    let hosts =
        told(&app("staff", nobody, "['https://a.example/new', 'https://a.example/cb']\nconsent = 'once'"))
            .await;
    let [HostPreview { client: Some(client), changes, .. }] = &hosts[..] else { panic!("{hosts:?}") };
    let added = UriChange { added: vec!["https://a.example/new".to_owned()], removed: Vec::new() };
    assert_eq!((&client.redirect_uris, &client.settings[..], changes.len()), (&added, &["consent"][..], 0));
    assert!(client.post_logout_redirect_uris.is_unchanged());
    // Another id is another client.
    let hosts = told(&app("staff", nobody, &format!("{one}\nclient_id = 'new'"))).await;
    let [gone, new] = &hosts[..] else { panic!("{hosts:?}") };
    for (host, id, of) in [(gone, "dash", [Some("dash"), None]), (new, "new", [None, Some("dash")])] {
        let client = host.client.as_ref().unwrap();
        assert_eq!((client.client_id.as_str(), [host.before.as_deref(), host.after.as_deref()]), (id, of));
        assert!(host.is_added_or_removed() && !client.redirect_uris.is_unchanged());
        let all = people.iter().filter(|it| it.groups.contains("staff")).count() as u64;
        let counts = [host.changes[0].loses.count, host.changes[0].gains.count];
        assert_eq!(counts, if id == "dash" { [all, 0] } else { [0, all] });
    }
    // The whole application goes: its host, which nobody could use, and its client.
    let hosts = told(&Apps::default()).await;
    assert_eq!(
        hosts.iter().map(|host| host.client.is_some()).collect::<Vec<_>>(),
        [false, true],
        "{hosts:?}"
    );
}

async fn names_and_groups_that_nobody_has_are_found(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    people(&accounts, &Dice(Entropy::seeded(7))).await;
    let name = |name: &str| Who::Name(name.to_owned());
    let group = |group: &str| Who::Group(group.to_owned());
    let names = ["user-00", "user-01", "user-03", "mallory", "o'hara", "用户"].map(name);
    let others = [GROUPS.map(group).as_slice(), &[Who::Everyone]].concat();
    let found = accounts.find_listed(&[&names], others.iter()).await.unwrap();
    let missing = ["mallory", "o'hara", "user-00", "user-01", "用户"].map(name);
    let missing = missing.into_iter().chain([group("nobody-is-in-it")]).collect();
    assert_eq!(found, ListedAccounts { entering: vec![1], missing });
}

async fn as_many_and_as_long_lists_as_the_configuration_takes_are_counted(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    let dice = Dice(Entropy::seeded(5));
    let people = people(&accounts, &dice).await;
    let empty = |list: usize, number: usize| match number % 2 {
        0 => Who::Group(format!("empty-{list}-{number}")),
        _ => Who::Name(format!("nobody-{list}-{number}")),
    };
    let list =
        |list: usize| (0..195).map(move |number| empty(list, number)).chain(dice.who()).chain(dice.who());
    let lists: Vec<Vec<Who>> = (0..200).map(|number| list(number).collect()).collect();
    let borrowed: Vec<&[Who]> = lists.iter().map(Vec::as_slice).collect();
    let ListedAccounts { entering, missing } =
        accounts.find_listed(&borrowed, std::iter::empty()).await.unwrap();
    assert!(missing.len() >= 200 * 195, "{}", missing.len());
    for (who, entering) in lists.into_iter().zip(entering) {
        let app = App { who, ..wiki() };
        let judged = people.iter().filter(|it| may_use(&app, it.login.as_str(), &it.groups)).count();
        assert_eq!(entering, judged as u64, "{:?}", &app.who[195..]);
    }
}

async fn what_is_asked_for_is_told(database: TestDatabase) {
    let accounts = accounts_in(database.open().await);
    let apps = |factor: AppFactor, age: Option<Duration>| {
        let part = AppPart {
            path: PathPattern::parse("/keys/*").unwrap(),
            factor_within: age,
            ..AppPart::default()
        };
        Apps::new(vec![App { who: vec![Who::Everyone], parts: vec![part], factor, ..wiki() }])
    };
    let told = async |before: &Apps, after: &Apps| {
        let trial = compare_apps(&accounts, before, after).await.unwrap();
        let of =
            |path: &PathPreview| (path.paths.join(" "), path.others, path.factor, path.factor_within.after);
        trial.hosts.iter().flat_map(|host| host.changes.iter().map(of)).collect::<Vec<_>>()
    };
    let change = |before, after| FactorChange { before, after };
    let (none, second, passkey) = (AppFactor::None, AppFactor::Second, AppFactor::Passkey);
    let keys = "/keys/*".to_owned();
    let aged = told(&apps(none, None), &apps(none, Some(HOUR))).await;
    assert_eq!(aged, [(keys.clone(), false, change(none, second), Some(HOUR))], "an age asks for any");
    let raised = told(&apps(second, Some(HOUR)), &apps(passkey, Some(HOUR))).await;
    assert_eq!(raised.len(), 2, "{raised:?}");
    assert!(raised.iter().all(|told| told.2 == change(second, passkey)), "{raised:?}");
    let fresh = told(&Apps::default(), &apps(second, None)).await;
    assert!(fresh.iter().all(|told| told.2 == change(none, second)) && !fresh.is_empty(), "{fresh:?}");
    assert_eq!(told(&apps(second, None), &apps(second, None)).await, []);
}

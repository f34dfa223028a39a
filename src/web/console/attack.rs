//! An attack in words, for the overview: what, since when, from whom to whom, and the answers to it.

use std::time::Duration;

use ipnet::IpNet;
use rust_i18n::t;
use url::form_urlencoded;

use crate::audit::{
    AttackEntry, AttackFigures, AttackKind, AttackShare, AttackState, MINUTE, OriginShare, recent_length,
};
use crate::clock::Micros;
use crate::config::{AccessSettings, DeniedSubject};
use crate::web::console::access::AccessAnswer;
use crate::web::console::chart::sparkline;
use crate::web::console::figures::HOUR;
use crate::web::console::limit_text::grouped;
use crate::web::http::{Locale, Moment};

pub struct AttackBanner {
    pub id: String,
    pub title: String,
    pub since: Moment,
    /// The locale key of what it does now.
    pub state: &'static str,
    pub tone: &'static str,
    /// The hour by the minute.
    pub spark: String,
    /// The largest networks, with their shares.
    pub networks: Vec<(String, AnswerLink)>,
    /// Its largest origins, likewise.
    pub origins: Vec<(String, AnswerLink)>,
    /// Most of it comes from the first of them.
    pub refuse_first: bool,
    pub quiet: Option<Moment>,
    /// What the answers to it have done since it began.
    pub answered: Option<String>,
    pub in_force: bool,
    /// Its shape: from one or many, at one or many.
    pub sentences: Vec<String>,
    /// Locale key and number.
    pub facts: Vec<(&'static str, String)>,
    pub answers: Vec<AnswerLink>,
    pub events: String,
}

/// The form of an answer, unless that is in force.
pub struct AnswerLink {
    /// The answer; of one that refuses a network, the network.
    pub text: String,
    pub href: String,
    pub in_force: bool,
}

impl AnswerLink {
    pub fn new(answer: AccessAnswer, subject: &str, text: String, access: &AccessSettings) -> Self {
        Self { text, href: answer.href(subject), in_force: is_in_force(answer, subject, access) }
    }

    /// Makes a link; None if the mask is of something else than a network.
    pub fn deny(mask: &str, access: &AccessSettings) -> Option<Self> {
        mask.parse::<IpNet>().ok()?;
        Some(Self::new(AccessAnswer::Deny, mask, mask.to_owned(), access))
    }
}

impl AttackBanner {
    /// `minutes`: its attempts in the last hour, by the minute.
    pub fn new(
        locale: Locale,
        access: &AccessSettings,
        attack: &AttackEntry,
        minutes: impl IntoIterator<Item = u64>,
    ) -> Self {
        let AttackEntry { id, kind, began_at, figures, .. } = attack;
        let attack_state = figures.state(*kind);
        let (state, tone) = match attack_state {
            AttackState::Rising => ("attack.rising", "bad"),
            AttackState::Steady => ("attack.steady", "bad"),
            AttackState::Answered => ("attack.answered", "warn"),
            AttackState::Quiet => ("attack.quiet", "plain"),
        };
        let (in_force, answers): (Vec<_>, Vec<_>) =
            answers(locale, *kind, figures, access).into_iter().partition(|answer| answer.in_force);
        let share = |percent: u64| if percent == 0 { "< 1%".to_owned() } else { format!("{percent}%") };
        let network = |it: &AttackShare| Some((share(it.percent), AnswerLink::deny(&it.mask, access)?));
        let networks: Vec<_> = figures.largest_networks.iter().filter_map(network).collect();
        let origin = |OriginShare { key, name, percent }: &OriginShare| {
            (share(*percent), AnswerLink::new(AccessAnswer::Deny, key, name.clone(), access))
        };
        let origins: Vec<_> = figures.origins.iter().map(origin).collect();
        Self {
            spark: sparkline(minutes),
            tone,
            id: id.clone(),
            title: title(locale, attack, attack_state),
            since: Moment(*began_at),
            state,
            quiet: (attack_state == AttackState::Quiet).then_some(Moment(Micros(figures.busy_until))),
            answered: answered(locale, *kind, figures),
            in_force: !in_force.is_empty() || networks.iter().chain(&origins).any(|(_, deny)| deny.in_force),
            refuse_first: figures.top_network.is_some()
                && networks.first().is_some_and(|(_, deny)| !deny.in_force),
            networks,
            origins,
            sentences: sentences(locale, *kind, figures),
            facts: facts(*kind, figures),
            answers,
            events: events_of(attack),
        }
    }
}

pub fn events_of(attack: &AttackEntry) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("action", attack.kind.action().into_str());
    if !attack.realm.is_empty() {
        query.append_pair("realm", &attack.realm);
    }
    for outcome in attack.kind.outcomes() {
        query.append_pair("outcome", outcome.into_str());
    }
    query.append_pair("since", &Moment(attack.began_at).iso());
    if attack.ended_at.is_some() {
        // The end of a range is not in it, and is told in whole seconds.
        query.append_pair("until", &Moment(Micros(attack.seen_at.0 + 1_000_000)).iso());
    }
    query.append_pair("each", "1");
    format!("/admin/events?{}", query.finish())
}

/// How many there are now, or were until it fell quiet, beside what is usual.
fn title(locale: Locale, attack: &AttackEntry, state: AttackState) -> String {
    let AttackEntry { kind, realm, began_at, seen_at, figures, .. } = attack;
    let key = match kind {
        AttackKind::SignIns => "attack.sign-ins",
        AttackKind::Messages => "attack.messages",
        AttackKind::Mails => "attack.mails",
        AttackKind::Registrations => "attack.registrations",
        AttackKind::Attempts => "attack.realm",
    };
    let length = seen_at.since(*began_at);
    let (count, span) = match state {
        AttackState::Quiet => (figures.attempts, Micros(figures.busy_until).since(*began_at)),
        // The rows that were read may not reach back for a minute; the sums are complete.
        _ if figures.partial => (figures.recent, length.min(recent_length(*seen_at))),
        _ => (figures.minute, length.min(MINUTE)),
    };
    let usual = match figures.usual {
        0 => locale.t("attack.none").into_owned(),
        usual => rate(locale, usual, HOUR),
    };
    let code = locale.code();
    t!(key, locale = code, rate = rate(locale, count, span), usual = usual, realm = realm).into_owned()
}

/// So many within a span, by the second, the minute or the hour: the shortest in which there are two.
fn rate(locale: Locale, count: u64, span: Duration) -> String {
    let in_hour = count * HOUR.as_secs() / span.as_secs().max(1);
    let (key, count) = match in_hour {
        7_200.. => ("attack.per-second", in_hour / 3_600),
        120.. => ("attack.per-minute", in_hour / 60),
        _ => ("attack.per-hour", in_hour),
    };
    t!(key, locale = locale.code(), count = grouped(count)).into_owned()
}

/// Nothing else is needed to say where it comes from.
const DOMINANT_PERCENT: u64 = 50;

fn sentences(locale: Locale, kind: AttackKind, figures: &AttackFigures) -> Vec<String> {
    let told = |key: &'static str, share: &AttackShare| {
        t!(key, locale = locale.code(), percent = share.percent, mask = share.mask).into_owned()
    };
    let AttackFigures { top_address, top_network, top_prefix, top_name, .. } = figures;
    let from_origin = |OriginShare { name, percent, .. }: &OriginShare| {
        t!("attack.from-origin", locale = locale.code(), percent = percent, name = name).into_owned()
    };
    let top_origin = figures.origins.first().filter(|origin| origin.percent >= DOMINANT_PERCENT);
    let from = match (top_address, top_network) {
        (Some(share), _) => told("attack.from-address", share),
        (None, Some(share)) => told("attack.from-network", share),
        (None, None) => top_origin.map_or_else(|| locale.t("attack.from-many").into_owned(), from_origin),
    };
    let at = match (kind, top_name, top_prefix) {
        (AttackKind::SignIns | AttackKind::Attempts, Some(share), _) => Some(told("attack.at-name", share)),
        (AttackKind::SignIns | AttackKind::Attempts, None, _) => {
            Some(locale.t("attack.at-many").into_owned())
        }
        (AttackKind::Messages, _, Some(share)) => Some(told("attack.to-prefix", share)),
        (AttackKind::Messages, _, None) => Some(locale.t("attack.to-many").into_owned()),
        (AttackKind::Mails | AttackKind::Registrations, ..) => None,
    };
    std::iter::once(from).chain(at).collect()
}

fn least(figures: &AttackFigures, count: u64) -> String {
    if figures.partial { format!("≥ {}", grouped(count)) } else { grouped(count) }
}

fn facts(kind: AttackKind, figures: &AttackFigures) -> Vec<(&'static str, String)> {
    let sure = |key, count| (key, grouped(count));
    let least = |key, count| (key, least(figures, count));
    let attempts = sure("attack.attempts", figures.attempts);
    let from = [least("attack.addresses", figures.addresses), least("attack.networks", figures.networks)];
    let names = least("attack.names", figures.names);
    let honest = least("attack.honest", figures.honest);
    let mut facts = vec![attempts];
    facts.extend(from);
    facts.extend(match kind {
        AttackKind::SignIns | AttackKind::Attempts => {
            vec![names, least("attack.compared", figures.done), honest]
        }
        AttackKind::Messages => vec![
            least("attack.numbers", figures.numbers),
            least("attack.prefixes", figures.prefixes),
            least("attack.sent", figures.done),
            least("attack.entered", figures.entered),
            honest,
        ],
        AttackKind::Mails => vec![
            least("attack.mailboxes", figures.numbers),
            least("attack.sent", figures.done),
            least("attack.entered", figures.entered),
            honest,
        ],
        AttackKind::Registrations => vec![names, least("attack.made", figures.done)],
    });
    facts
}

fn answered(locale: Locale, kind: AttackKind, figures: &AttackFigures) -> Option<String> {
    let told = |key: &'static str, count: u64| {
        (count > 0).then(|| t!(key, locale = locale.code(), count = grouped(count)).into_owned())
    };
    let refused = told("attack.answer-refused", figures.answer_refused);
    let challenged = told("attack.answer-challenged", figures.answer_challenged);
    let percent = (figures.minute_answered * 100).checked_div(figures.minute);
    let lately =
        percent.map(|it| t!("attack.answer-minute", locale = locale.code(), percent = it).into_owned());
    let key = match kind {
        AttackKind::SignIns | AttackKind::Attempts => "attack.compared-since",
        AttackKind::Messages | AttackKind::Mails => "attack.sent-since",
        AttackKind::Registrations => "attack.made-since",
    };
    let since =
        figures.done_since.map(|it| t!(key, locale = locale.code(), count = least(figures, it)).into_owned());
    let did: Vec<_> = refused.into_iter().chain(challenged).collect();
    let told: Vec<_> =
        did.iter().cloned().chain(lately.into_iter().chain(since).filter(|_| !did.is_empty())).collect();
    (!told.is_empty()).then(|| told.join(" · "))
}

/// The answers to an attack beside those to its networks.
fn answers(
    locale: Locale,
    kind: AttackKind,
    figures: &AttackFigures,
    access: &AccessSettings,
) -> Vec<AnswerLink> {
    let challenge = locale.t("attack.challenge").into_owned();
    let mut answers = vec![AnswerLink::new(AccessAnswer::Challenge, "", challenge, access)];
    if let (AttackKind::Messages, Some(AttackShare { mask, .. })) = (kind, &figures.top_prefix) {
        let prefix = mask.trim_end_matches('*');
        let text = t!("attack.pause", locale = locale.code(), prefix = prefix).into_owned();
        answers.push(AnswerLink::new(AccessAnswer::Pause, prefix, text, access));
    }
    answers
}

fn is_in_force(answer: AccessAnswer, subject: &str, access: &AccessSettings) -> bool {
    match answer {
        AccessAnswer::Challenge => access.challenge_everyone_until.is_some(),
        AccessAnswer::Deny | AccessAnswer::Allow => {
            let network = subject.parse::<IpNet>().ok();
            access.deny.iter().any(|entry| match &entry.subject {
                DeniedSubject::Network(denied) => network.is_some_and(|it| denied.contains(&it)),
                DeniedSubject::Origin(key) => key.to_string() == subject,
            })
        }
        AccessAnswer::Pause => access.pause_sms.iter().any(|entry| subject.starts_with(&entry.prefix)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AccessDenial;

    fn attack(kind: AttackKind, figures: AttackFigures) -> AttackEntry {
        let began_at = Micros::from_seconds(1_772_366_400);
        let (id, realm) = ("a".into(), String::new());
        AttackEntry { id, kind, realm, began_at, seen_at: began_at, ended_at: None, figures }
    }

    fn share(mask: &str) -> Option<AttackShare> {
        Some(AttackShare { key: 7, mask: mask.into(), percent: 98, ..AttackShare::default() })
    }

    fn shown(attack: &AttackEntry) -> (String, Vec<String>, Vec<String>) {
        let banner = AttackBanner::new(Locale::En, &AccessSettings::default(), attack, []);
        let answers = banner.answers.into_iter().map(|answer| answer.href);
        let networks = banner.networks.into_iter().map(|(_, deny)| deny.href);
        (banner.title, banner.sentences, answers.chain(networks).collect())
    }

    #[test]
    fn a_spray_from_many_addresses_reads_differently_from_one_address_at_many_names() {
        let spray =
            AttackFigures { minute: 6_000, minute_before: 6_000, usual: 2, ..AttackFigures::default() };
        let spray = AttackEntry {
            seen_at: Micros::from_seconds(1_772_370_000),
            ..attack(AttackKind::SignIns, spray)
        };
        let (title, sentences, answers) = shown(&spray);
        assert_eq!(title, "Failed sign-ins: 100 a second (usual: 2 an hour)");
        assert!(sentences[0].contains("none of them dominant"), "{sentences:?}");
        assert_eq!(answers, ["/admin/access?do=challenge"]);
        let single = AttackFigures {
            top_address: share("203.0.113.0/24"),
            top_network: share("203.0.113.0/24"),
            largest_networks: share("203.0.113.0/24").into_iter().collect(),
            ..AttackFigures::default()
        };
        let (title, sentences, answers) = shown(&attack(AttackKind::SignIns, single));
        assert!(title.contains("(usual: none)"), "{title}");
        assert!(sentences[0].contains("98% come from one address in 203.0.113.0/24"), "{sentences:?}");
        assert_eq!(answers[1], "/admin/access?do=deny&network=203.0.113.0%2F24");
    }

    #[test]
    fn an_answer_that_is_in_force_is_not_offered_again() {
        let small = AttackShare { mask: "198.51.100.0/24".into(), ..AttackShare::default() };
        let largest_networks = share("203.0.113.0/24").into_iter().chain([small]).collect();
        let attack =
            attack(AttackKind::SignIns, AttackFigures { largest_networks, ..AttackFigures::default() });
        let subject = DeniedSubject::Network("203.0.0.0/16".parse().unwrap());
        let deny = vec![AccessDenial { subject, until: Micros(1), reason: "r".to_owned() }];
        let denied = AccessSettings { deny, ..AccessSettings::default() };
        let both = AccessSettings { challenge_everyone_until: Some(Micros(1)), ..denied.clone() };
        for (access, offered, denied, in_force) in [
            (AccessSettings::default(), 1, [false, false], false),
            (denied, 1, [true, false], true),
            (both, 0, [true, false], true),
        ] {
            let banner = AttackBanner::new(Locale::En, &access, &attack, []);
            let told: Vec<_> =
                banner.networks.iter().map(|(share, deny)| (&**share, deny.in_force)).collect();
            assert_eq!(told, [("98%", denied[0]), ("< 1%", denied[1])]);
            assert_eq!((banner.answers.len(), banner.in_force), (offered, in_force));
        }
    }

    #[test]
    fn the_rate_of_a_flood_is_told_by_the_sums_where_its_rows_were_not_all_read() {
        let began_at = Micros::from_seconds(1_772_366_400);
        let told = |partial| {
            // 1,000 a second for half an hour, of which the newest 50,000 rows were read; 30 seconds into a minute.
            let figures = AttackFigures {
                minute: 50_000,
                minute_before: 50_000,
                recent: 270_000,
                partial,
                ..AttackFigures::default()
            };
            let seen_at = began_at.plus(Duration::from_secs(1_830));
            title(
                Locale::En,
                &AttackEntry { began_at, seen_at, ..attack(AttackKind::SignIns, figures) },
                AttackState::Steady,
            )
        };
        assert_eq!(told(true), "Failed sign-ins: 1,000 a second (usual: none)");
        assert_eq!(told(false), "Failed sign-ins: 833 a second (usual: none)");
    }

    #[test]
    fn a_rate_is_told_in_the_unit_that_has_two() {
        for (count, seconds, told) in [
            (2_000, 20, "100 a second"),
            (119, 60, "119 a minute"),
            (120, 60, "2 a second"),
            (7, 3_600, "7 an hour"),
            (3, 60, "3 a minute"),
            (1, 60, "60 an hour"),
            (5, 0, "5 a second"),
        ] {
            assert_eq!(rate(Locale::En, count, Duration::from_secs(seconds)), told);
        }
    }

    #[test]
    fn what_got_through_since_an_answer_is_told_beside_what_it_did() {
        let figures = AttackFigures {
            answer_refused: 1_200,
            minute: 100,
            minute_answered: 100,
            done_since: Some(0),
            ..AttackFigures::default()
        };
        let told = answered(Locale::En, AttackKind::SignIns, &figures).unwrap();
        assert_eq!(told, "1,200 refused · 100% of the last minute · passwords compared since: 0");
        assert_eq!(answered(Locale::En, AttackKind::SignIns, &AttackFigures::default()), None);
    }

    #[test]
    fn messages_to_one_prefix_can_be_paused() {
        let figures = AttackFigures { top_prefix: share("+861380013****"), ..AttackFigures::default() };
        let (_, sentences, answers) = shown(&attack(AttackKind::Messages, figures));
        assert!(sentences[1].contains("+861380013****"), "{sentences:?}");
        assert_eq!(answers[1], "/admin/access?do=pause&prefix=%2B861380013");
    }

    #[test]
    fn the_events_of_an_attack_are_those_that_it_consists_of() {
        let href = events_of(&attack(AttackKind::SignIns, AttackFigures::default()));
        let expected = "/admin/events?action=sign-in&outcome=wrong&outcome=challenged&outcome=throttled\
            &outcome=busy&outcome=refused&since=2026-03-01T12%3A00%3A00Z&each=1";
        assert_eq!(href, expected);
    }

    #[test]
    fn an_attack_at_another_login_names_it() {
        let here = attack(AttackKind::Attempts, AttackFigures::default());
        let there = AttackEntry { realm: "shop".into(), ..here };
        let (title, _, answers) = shown(&there);
        assert_eq!(title, "Failed attempts at guard:shop: 0 an hour (usual: none)");
        assert_eq!(answers, ["/admin/access?do=challenge"]);
        let href = events_of(&there);
        assert!(href.starts_with("/admin/events?action=attempt&realm=shop&outcome=wrong"), "{href}");
    }
}

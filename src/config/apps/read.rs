//! Reads `[[apps]]` as strictly as the rest of the document.

use std::collections::HashSet;
use std::time::Duration;

use url::Url;

use super::host::{host, name_of};
use super::{App, AppPart, Apps, PathPattern, Who};
use crate::config::document::ValueNode;
use crate::config::reader::{ParseResult, SectionReader};
use crate::config::values::duration;

/// Applications; hosts, names, paths and parts of one; names of a part.
const MOST: usize = 200;
/// All of these together: 25 for each of 200 applications. Judging a document reads them several times.
const MOST_IN_ALL: usize = 5_000;
const LONGEST_NAME: usize = 64;
/// A session lasts no longer.
const LONGEST_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// `public_url` is our own, whose host no application can have.
pub(in crate::config) fn read(root: &mut SectionReader<'_>, public_url: &Url) -> Apps {
    let Some(place) = root.place_of("apps") else { return Apps::default() };
    let in_all = root.items_under("apps");
    if in_all > MOST_IN_ALL {
        let reason = format!(
            "has {in_all} entries with the hosts, names, paths and parts in them; at most {MOST_IN_ALL} are allowed"
        );
        root.refuse(place, "apps".to_owned(), reason);
        root.skip("apps");
        return Apps::default();
    }
    let found = root.tables("apps", MOST, |section| app(section, public_url)).unwrap_or_default();
    let (mut names, mut hosts) = (HashSet::new(), HashSet::new());
    for (index, app) in found.iter().enumerate().filter_map(|(index, app)| Some((index, app.as_ref()?))) {
        if !names.insert(&app.name) {
            let reason = format!("{:?} is the name of another application, too", app.name);
            root.refuse(place.clone(), format!("apps[{index}].name"), reason);
        }
        for host in &app.hosts {
            if !hosts.insert(name_of(host)) {
                let name = name_of(host);
                let reason = format!(
                    "{name:?} is listed twice; a name belongs to one application at one port, because browsers keep cookies for the name alone"
                );
                root.refuse(place.clone(), format!("apps[{index}].hosts"), reason);
            }
        }
    }
    Apps::new(found.into_iter().flatten().collect())
}

fn app(section: &mut SectionReader<'_>, public_url: &Url) -> Option<App> {
    let missing = "is missing; write a short name for the console: \"wiki\"";
    let name = section.required("name", missing, section.place().cloned(), name);
    let (path, at) = (section.path_of("hosts"), section.place_of("hosts"));
    let hosts = section.list("hosts", MOST, |node| match host(node)? {
        host if Some(name_of(&host)) == public_url.host_str() => Err(format!(
            "{host:?} is the name of server.public_url, whose cookies browsers would send to it, whatever the port; an application needs a name of its own"
        )),
        host => Ok(host),
    });
    let hosts = hosts.unwrap_or_default();
    if let (true, Some(at)) = (hosts.is_empty() && !section.failed(), at) {
        section.refuse(
            at,
            path,
            "is missing; name the hosts at which browsers ask for it: [\"wiki.example\"]",
        );
    }
    let who = section.list("who", MOST, who).unwrap_or_default();
    let public = section.list("public", MOST, PathPattern::read).unwrap_or_default();
    let parts = section.tables("parts", MOST, part).unwrap_or_default();
    Some(App { name: name?, hosts, who, public, parts: parts.into_iter().collect::<Option<_>>()? })
}

fn part(section: &mut SectionReader<'_>) -> Option<AppPart> {
    let place = section.place().cloned();
    let missing = "is missing; write which paths it is about: \"/admin/*\"";
    let path = section.required("path", missing, place.clone(), PathPattern::read);
    let who = section.list("who", MOST, who);
    let signed_in_within = section.optional("signed_in_within", age);
    let password_within = section.optional("password_within", age);
    let asks_nothing = who.is_none() && signed_in_within.is_none() && password_within.is_none();
    if let (true, false, Some(place)) = (asks_nothing, section.failed(), place) {
        let reason = "requires nothing; add who, signed_in_within or password_within";
        section.refuse(place, section.path().to_owned(), reason);
    }
    Some(AppPart { path: path?, who, signed_in_within, password_within })
}

fn age(node: ValueNode) -> ParseResult<Duration> {
    duration(Duration::from_secs(60)..=LONGEST_AGE)(node)
}

fn name(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let plain = !text.trim().is_empty() && text.trim() == text && !text.chars().any(char::is_control);
    match text.chars().count() {
        1..=LONGEST_NAME if plain => Ok(text),
        _ => Err(format!(
            "{text:?} is not a name; write 1 to {LONGEST_NAME} characters on one line, such as \"wiki\""
        )),
    }
}

fn who(node: ValueNode) -> ParseResult<Who> {
    let text = node.text()?;
    let wanted = "write \"everyone\", \"group:staff\" or the name of an account";
    if text == "everyone" {
        return Ok(Who::Everyone);
    }
    if let Some(group) = text.strip_prefix("group:") {
        let fits = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
        if (1..=64).contains(&group.len()) && group.bytes().all(fits) {
            return Ok(Who::Group(group.to_owned()));
        }
        return Err(format!("{group:?} is not a group: use 1 to 64 of a-z, 0-9 and -"));
    }
    let odd = |letter: char| {
        letter.is_whitespace() || letter.is_control() || letter.is_uppercase() || "@:*".contains(letter)
    };
    if text.is_empty() || text.len() > 255 || text.chars().any(odd) {
        return Err(format!("{text:?} is nobody; {wanted}, in lower case"));
    }
    Ok(Who::Name(text))
}

//! `[origins]`: the files that tell where addresses come from. Their contents are read by [`crate::origins`].

use std::path::PathBuf;

use super::reader::{SectionReader, WithinSection, section};
use super::values::{if_any, path};
use crate::origins::{OriginSource, is_list_name};

section! {
    OriginSettings in "origins" {
        /// A database in MaxMind's format that has numbers of autonomous systems.
        asn: Option<PathBuf> = None, if_any(path);
        /// One that has countries; it may be the same.
        country: Option<PathBuf> = None, if_any(path);
        lists: Vec<OriginList> = Vec::new(), WithinSection(lists);
    }
}

/// A file with an address or a network a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginList {
    pub name: String,
    pub file: PathBuf,
}

/// Each is looked at for every request while `[access] deny` names an origin.
const MOST_LISTS: usize = 16;

impl OriginSettings {
    /// The files in the order in which origins are told.
    pub fn files(&self) -> Vec<(OriginSource, PathBuf)> {
        let database = |source, file: &Option<PathBuf>| file.clone().map(|file| (source, file));
        let lists =
            self.lists.iter().map(|it| (OriginSource::List(it.name.as_str().into()), it.file.clone()));
        let databases =
            [database(OriginSource::Asn, &self.asn), database(OriginSource::Country, &self.country)];
        databases.into_iter().flatten().chain(lists).collect()
    }
}

fn lists(section: &mut SectionReader<'_>, key: &'static str) -> Option<Vec<OriginList>> {
    let lists: Vec<OriginList> = section.tables(key, MOST_LISTS, list)?.into_iter().flatten().collect();
    let twice =
        lists.iter().enumerate().find(|(at, list)| lists[..*at].iter().any(|it| it.name == list.name));
    if let Some((_, OriginList { name, .. })) = twice {
        section.refuse_key(key, format!("has two lists with the name {name:?}; give each its own"));
    }
    Some(lists)
}

fn list(section: &mut SectionReader<'_>) -> Option<OriginList> {
    let name = section.required("name", "is missing; write what deny calls it: \"tor\"", |node| {
        let name = node.text()?;
        match is_list_name(&name) {
            true => Ok(name),
            false => Err(format!("{name:?} is no name of a list; use 1 to 32 of a-z, 0-9 and -")),
        }
    });
    let file = section.required("file", "is missing; write where the list is", path);
    Some(OriginList { name: name?, file: file? })
}

//! Whom a look-up asks for: what somebody typed, or a subject of the record by its hash.

use crate::audit::SubjectKind;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::lookup::{LookupSubject, RecordedSubject};
use crate::web::console::lookup::subject;
use crate::web::console::subject_link::{field, hash_text, parse_hash};
use crate::web::kit::services::Services;

/// What leads a subject of the record. No name, number or address begins with it.
const HASH: char = '#';
const KINDS: [SubjectKind; 3] = [SubjectKind::Account, SubjectKind::Address, SubjectKind::Phone];

/// Whom they ask for.
pub struct AskedSubject {
    /// None if it is only known by its hash.
    pub subject: Option<LookupSubject>,
    /// Of one that was asked for by its hash.
    pub masked: Option<MaskedAsked>,
}

/// A subject that was asked for by its hash.
pub struct MaskedAsked {
    pub recorded: RecordedSubject,
    pub mask: String,
}

/// The text that forms carry for a subject of the record.
pub fn text_of(recorded: RecordedSubject) -> String {
    format!("{HASH}{}:{}", field(recorded.kind), hash_text(recorded.key))
}

/// A subject of the record from that text.
pub fn recorded(text: &str) -> Option<RecordedSubject> {
    let (name, hash) = text.strip_prefix(HASH)?.split_once(':')?;
    let kind = KINDS.into_iter().find(|kind| field(*kind) == name)?;
    Some(RecordedSubject { kind, key: parse_hash(hash)? })
}

/// A subject of the record from a query: `account=`, `address=` or `phone=`, and its hash.
pub fn in_query(query: &[(String, String)]) -> Option<RecordedSubject> {
    let named = |kind: SubjectKind| {
        let (_, hash) = query.iter().find(|(name, _)| name == field(kind))?;
        Some(RecordedSubject { kind, key: parse_hash(hash)? })
    };
    KINDS.into_iter().find_map(named)
}

/// What somebody typed; nothing of a subject that they did not type.
pub fn typed(asked: &str) -> &str {
    if recorded(asked).is_some() { "" } else { asked }
}

/// None if it is nobody that limits can count, or that an event names.
pub async fn resolve(
    services: &Services,
    live: &LiveSettings,
    asked: &str,
) -> Result<Option<AskedSubject>, DbError> {
    let Some(recorded) = recorded(asked) else {
        let subject = subject::read(asked, live);
        return Ok(subject.map(|subject| AskedSubject { subject: Some(subject), masked: None }));
    };
    let found = services.lookup.find(recorded).await?;
    Ok(found.map(|found| {
        let masked = Some(MaskedAsked { recorded, mask: found.mask });
        AskedSubject { subject: found.subject, masked }
    }))
}

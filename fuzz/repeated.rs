//! Long documents from short ones, for the target `config` and for the unit tests, which read its corpus.

/// What stands between two U+0001 is repeated until the document has `longest` bytes; U+0002 becomes the number of the
/// repetition. A document without them stays as it is.
pub fn repeated(text: &str, longest: usize) -> String {
    let parts: Vec<&str> = text.splitn(3, '\u{1}').collect();
    let [head, part, tail] = parts[..] else { return text.to_owned() };
    let mut document = head.to_owned();
    for number in 0.. {
        let part = part.replace('\u{2}', &number.to_string());
        if part.is_empty() || document.len() + part.len() + tail.len() > longest {
            break;
        }
        document += &part;
    }
    document + tail
}

/// More entries than a document can have of all lists together.
pub const MOST_VISITED: usize = 32 * 1024;
/// The most problems that are told of one document.
pub const MOST_PROBLEMS: usize = 100;

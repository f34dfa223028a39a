//! Reads CBOR (RFC 8949) as authenticators write it: lengths are told beforehand, and nothing nests deeply.

/// Authenticators nest at most four deep (CTAP 2, section 8).
const DEEPEST: u8 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    /// So many items follow.
    Array(u64),
    /// So many keys follow, each with its value.
    Map(u64),
    /// True, false, null, or a number with a fraction.
    Other,
}

/// Never reads past the end: a length that is more than what is left is a fault.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes, which are no CBOR.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next item; of an array or a map only its head.
    pub fn item(&mut self) -> Option<Item<'a>> {
        let first = *self.bytes(1)?.first()?;
        let number = match first & 0x1f {
            small @ 0..=23 => u64::from(small),
            24 => self.number(1)?,
            25 => self.number(2)?,
            26 => self.number(4)?,
            27 => self.number(8)?,
            // Reserved, or a length that is not told.
            _ => return None,
        };
        Some(match first >> 5 {
            0 => Item::Integer(i64::try_from(number).ok()?),
            1 => Item::Integer(-1 - i64::try_from(number).ok()?),
            2 => Item::Bytes(self.bytes(usize::try_from(number).ok()?)?),
            3 => Item::Text(std::str::from_utf8(self.bytes(usize::try_from(number).ok()?)?).ok()?),
            4 => Item::Array(number),
            5 => Item::Map(number),
            7 => Item::Other,
            // Tags, which authenticators do not write.
            _ => return None,
        })
    }

    /// The next item whole, as its bytes.
    pub fn skip(&mut self) -> Option<&'a [u8]> {
        let start = self.rest;
        self.pass(DEEPEST)?;
        Some(&start[..start.len() - self.rest.len()])
    }

    fn pass(&mut self, deeper: u8) -> Option<()> {
        let inside = match self.item()? {
            Item::Array(items) => items,
            Item::Map(entries) => entries.checked_mul(2)?,
            _ => return Some(()),
        };
        let deeper = deeper.checked_sub(1)?;
        // Each takes a byte at least, so a false count ends with the input.
        (0..inside).try_for_each(|_| self.pass(deeper))
    }

    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.bytes(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

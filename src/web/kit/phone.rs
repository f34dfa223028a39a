//! Parses a typed telephone number by the current settings.

use crate::config::LiveSettings;
use crate::sms::{Phone, PhoneError};

/// A mobile number of a country that codes are sent to.
pub fn parse(live: &LiveSettings, typed: &str) -> Result<Phone, PhoneError> {
    Phone::parse(typed, &live.sms.default_region)?.allowed_in(&live.sms.countries)
}

//! Logs an internal error once, and answers without its cause.

use std::fmt::Display;

use crate::db::DbError;
use crate::login::ServiceError;
use crate::lookup::LookupError;
use crate::sms::SmsError;
use crate::web::kit::problem::Problem;

/// `?` on an error of a service answers [`Problem::BROKEN`].
macro_rules! broken {
    ($($error:ty),+) => {
        $(impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                log(&error);
                Self::BROKEN
            }
        })+
    };
}

broken!(DbError, ServiceError, SmsError, LookupError);

/// An outage is logged once, when it begins. Its later errors are not logged.
pub fn log(error: &impl Display) {
    if crate::db::OUTAGE.is_out() {
        tracing::debug!(%error, "a request could not be answered");
    } else {
        tracing::error!(%error, "a request could not be answered");
    }
}

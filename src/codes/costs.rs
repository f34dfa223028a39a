//! What messages went to each country within a day and what they cost, and a budget in money: told, and kept to if the
//! operator says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use sqlx::query_as;
use utoipa::ToSchema;

use super::RequestedMessage;
use super::ledger::Ledger;
use super::money::{MoneyLeft, MoneySide, MoneySpent, SentRow};
use super::service::CodeService;
use super::spent::SpentRule;
use crate::audit::{Action, AuditEvent, Outcome};
use crate::clock::Micros;
use crate::config::{CountryMode, LiveSettings, Money, SMS_BUDGET};
use crate::db::{DbError, on_db};
use crate::sms::UNKNOWN_COUNTRY;

/// The messages of the last 24 hours to a country, our own and those of programs.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = CountryMessages)]
pub struct CountryFigures {
    /// ISO 3166-1, two letters, or `001` for networks of no country; `ZZ` if it is not known, and empty of messages of a
    /// version that did not keep it.
    pub country: String,
    pub sent: u64,
    /// How many of these codes were entered.
    pub entered: u64,
    /// Codes of our own pages that did not come back, weighed as for a brake: one that was sent with a solved CAPTCHA
    /// counts half, and no network's count more than 4.
    pub unreturned: u32,
    /// The number of unreturned codes from which requests need a solved CAPTCHA.
    pub asks_from: u32,
    /// Whether they need one for that reason now.
    pub asks: bool,
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    pub cost: Money,
}

pub fn as_text<S: serde::Serializer>(cost: &Money, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(cost)
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Ledger {
    /// Messages that were sent since then, by share, country, and whether they are a program's; and how many of their codes
    /// were entered.
    async fn by_country(&self, since: Micros) -> Result<Vec<SentRow>, DbError> {
        const SQL: &str = "SELECT share, country, CAST(CASE WHEN scope = '' THEN 0 ELSE 1 END AS BIGINT) AS program,
            COUNT(*), COUNT(entered_at) FROM sms_messages
            WHERE created_at > $1 AND state <> 'refused' AND share <> 'withheld' AND scope <> 'mail' GROUP BY share, country, program";
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(since.0).fetch_all(pool).await)?)
    }
}

impl CodeService {
    /// The dearest first, then those with most messages.
    pub async fn countries(&self, live: &LiveSettings) -> Result<Vec<CountryFigures>, DbError> {
        let (ledger, pages) = (self.ledger(), "");
        let now = ledger.now().await?;
        let mut sums: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for (_, country, _, sent, entered) in ledger.by_country(now.minus(DAY)).await? {
            let sum = sums.entry(country).or_default();
            *sum = [sum[0] + sent.unsigned_abs(), sum[1] + entered.unsigned_abs()];
        }
        let mut countries = Vec::with_capacity(sums.len());
        for (country, [sent, entered]) in sums {
            let state = ledger.brakes.countries.get(pages, &country);
            let may_ask = live.sms.brake.enabled && live.sms.mode_of(Some(&country)) != CountryMode::Monitor;
            let cost = live.sms.price_to(&country).times(sent);
            let unreturned = state.map_or(0, |state| state.unreturned);
            let asks_from = state.map_or(live.sms.brake.min_sent_country, |state| state.asks_from);
            let asks = may_ask && state.is_some_and(|state| state.asks());
            countries.push(CountryFigures { country, sent, entered, unreturned, asks_from, asks, cost });
        }
        countries.sort_by_key(|row| std::cmp::Reverse((row.cost, row.sent)));
        Ok(countries)
    }

    /// Returns what was counted last; None if there is no budget.
    pub fn money_spent(&self, live: &LiveSettings) -> Option<Arc<MoneySpent>> {
        live.sms.budget.as_ref().map(|_| self.0.money.load_full())
    }

    pub(super) fn money_left(&self, live: &LiveSettings, message: &RequestedMessage) -> MoneyLeft {
        let Some(spent) = self.money_spent(live).filter(|_| live.sms.budget_blocks) else {
            return MoneyLeft::ALL;
        };
        let is_programs = message.purpose.program().is_some();
        let side = if is_programs { MoneySide::Programs } else { MoneySide::Pages };
        // Mail costs nothing for each.
        let Some(phone) = message.to.phone() else { return MoneyLeft::ALL };
        spent.left(&live.sms, side, phone.country().as_deref().unwrap_or(UNKNOWN_COUNTRY))
    }

    /// Judges what each country asks for, and counts what the last 24 hours have cost. Runs periodically: no request waits
    /// for it, so both are exceeded by what is sent meanwhile.
    pub async fn watch_costs(&self, live: &LiveSettings) {
        let watched = self.judge_and_count(live).await;
        let failed = self.0.costs_failed.swap(watched.is_err(), Ordering::Relaxed);
        if let Err(error) = watched
            && !failed
        {
            tracing::warn!(%error, "messages of countries could not be counted; the last count stays in force");
        }
    }

    async fn judge_and_count(&self, live: &LiveSettings) -> Result<(), DbError> {
        let ledger = self.ledger();
        let now = ledger.now().await?;
        ledger.brakes.countries.judge(&ledger.db, (&live.sms.brake, &live.limits.mail_domain), now).await?;
        let Some(budget) = &live.sms.budget else {
            self.0.money.store(Arc::default());
            return Ok(());
        };
        let rows = ledger.by_country(now.minus(DAY)).await?;
        let (before, mut spent) = (self.0.money.load_full(), MoneySpent::of(&rows, &live.sms));
        let rule = SpentRule { count: spent.spent.hundredths(), pages: 0, max: budget.amount.hundredths() };
        spent.level = rule.level_after(before.level);
        if spent.level > before.level {
            self.tell_money(spent.level.into_str(), None);
        }
        if live.sms.budget_blocks {
            let known = before.full(&live.sms);
            for country in spent.full(&live.sms).difference(&known) {
                self.tell_money("country", Some(country));
            }
        }
        self.0.money.store(Arc::new(spent));
        Ok(())
    }

    fn tell_money(&self, part: &str, country: Option<&str>) {
        let audit = &self.0.deps.audit;
        let event = AuditEvent::new(audit.now(), Action::Budget, Outcome::Ok);
        audit.record(AuditEvent {
            name: Some(part),
            limit: Some(SMS_BUDGET),
            detail: country.map(str::to_owned),
            ..event
        });
        tracing::warn!(part, country, "a large part of what messages may cost a day is spent");
    }
}

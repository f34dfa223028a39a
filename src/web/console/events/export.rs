//! `/admin/events.csv` and `/admin/events.json`: the filtered record as a file, written while it is read.

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use actix_web::web::{Bytes, Query};
use futures_util::stream::poll_fn;
use serde_json::json;
use tokio::sync::mpsc;

use crate::audit::{EventEntry, EventFilter, EventLog, MaskedSubject};
use crate::db::DbError;
use crate::request_id;
use crate::web::console::events::EventQuery;
use crate::web::console::guard::AdminRequest;
use crate::web::console::subject_link::hash_text;
use crate::web::form::FormPairs;
use crate::web::http::{Moment, WebResult};

/// Rows of one file: the newest.
pub const MOST: usize = 100_000;
const A_PAGE: u32 = 1_000;
const AHEAD: usize = 2;

/// `GET /admin/events.csv`
pub async fn csv(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    export(&request, &query, &CSV).await
}

/// `GET /admin/events.json`
pub async fn json(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    export(&request, &query, &JSON).await
}

struct ExportFormat {
    ending: &'static str,
    media_type: &'static str,
    head: &'static str,
    /// Adds a row to the text, and is told whether it is the first.
    row: fn(&mut String, EventEntry, bool),
    /// Is told whether there is more than one file holds.
    foot: fn(bool) -> String,
}

/// RFC 4180, with a header line.
const CSV: ExportFormat = ExportFormat {
    ending: "csv",
    media_type: "text/csv; charset=utf-8; header=present",
    head: HEAD,
    row: csv_row,
    foot: |_| String::new(),
};

/// The format in which the API lists them.
const JSON: ExportFormat = ExportFormat {
    ending: "json",
    media_type: "application/json",
    head: "{\"events\":[",
    row: json_row,
    foot: |cut| format!("\n],\"cut\":{cut}}}\n"),
};

async fn export(
    request: &AdminRequest,
    query: &[(String, String)],
    format: &'static ExportFormat,
) -> WebResult {
    let AdminRequest { visit, services, admin } = request;
    let asked = EventQuery::sent(request, query)?;
    services.audit.flush().await;
    // Recorded first: whoever hangs up has read a part.
    admin.did("events.export", &json!({ "format": format.ending, "filter": asked.query() }));
    let (sender, mut receiver) = mpsc::channel(AHEAD);
    let (log, filter) = (services.audit.log().clone(), asked.filter(visit.now()));
    request_id::spawn(async move {
        let sent = write(&log, &filter, format, &sender).await;
        if let Err(ExportEnd::Broken(error)) = sent {
            // The client sees an answer that was cut off, and no complete file.
            tracing::warn!(%error, "an export of events was cut off");
            let _ = sender.send(Err(error)).await;
        }
    });
    let name = format!("attachment; filename=\"gatehouse-events.{}\"", format.ending);
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, format.media_type))
        .insert_header((CONTENT_DISPOSITION, name))
        .streaming(poll_fn(move |context| receiver.poll_recv(context))))
}

enum ExportEnd {
    HungUp,
    Broken(DbError),
}

type ExportSender = mpsc::Sender<Result<Bytes, DbError>>;

async fn write(
    log: &EventLog,
    filter: &EventFilter,
    format: &ExportFormat,
    sender: &ExportSender,
) -> Result<(), ExportEnd> {
    let send = async |text: String| sender.send(Ok(Bytes::from(text))).await.map_err(|_| ExportEnd::HungUp);
    send(format.head.to_owned()).await?;
    let (mut after, mut written) = (None, 0);
    while written < MOST {
        let page = log.page(filter, after, A_PAGE).await.map_err(ExportEnd::Broken)?;
        let mut text = String::new();
        for entry in page.entries.into_iter().take(MOST - written) {
            (format.row)(&mut text, entry, written == 0);
            written += 1;
        }
        send(text).await?;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    send((format.foot)(after.is_some())).await
}

const HEAD: &str = "at,until,count,action,outcome,name,limit,rule,noted,solved,account,account_key,address,\
    address_key,phone,phone_key,prefix,actor,detail,request\r\n";

fn json_row(text: &mut String, entry: EventEntry, first: bool) {
    text.push_str(if first { "\n" } else { ",\n" });
    text.push_str(&serde_json::to_string(&entry).expect("numbers and texts"));
}

fn csv_row(text: &mut String, entry: EventEntry, _: bool) {
    let both = |shown: Option<MaskedSubject>| match shown {
        Some(MaskedSubject { key, mask }) => [mask, hash_text(key)],
        None => Default::default(),
    };
    let ([account, account_key], [address, address_key]) = (both(entry.account), both(entry.address));
    let ([phone, phone_key], [prefix, _]) = (both(entry.phone), both(entry.prefix));
    let cells = [
        Moment(entry.at).iso(),
        Moment(entry.until).iso(),
        entry.count.to_string(),
        entry.action.into_str().to_owned(),
        entry.outcome.into_str().to_owned(),
        entry.name.unwrap_or_default(),
        entry.limit.unwrap_or_default(),
        entry.rule.map(|rule| rule.to_string()).unwrap_or_default(),
        entry.noted.to_string(),
        entry.solved.to_string(),
        account,
        account_key,
        address,
        address_key,
        phone,
        phone_key,
        prefix,
        entry.actor.unwrap_or_default(),
        entry.detail.unwrap_or_default(),
        entry.request.unwrap_or_default(),
    ];
    let cells: Vec<String> = cells.iter().map(|cell| csv_cell(cell)).collect();
    text.push_str(&cells.join(","));
    text.push_str("\r\n");
}

/// Quoted where it must be. A program for tables would take what begins like a formula as one, and details
/// hold what people typed.
fn csv_cell(cell: &str) -> String {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{cell}") } else { cell.to_owned() };
    if text.contains(['"', ',', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_no_formula_and_ends_where_it_should() {
        for (cell, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("=1+1", "'=1+1"),
            ("+861380013****", "'+861380013****"),
            ("-7", "'-7"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "\"'\r=1\""),
            ("a,b", "\"a,b\""),
            ("say \"no\"", "\"say \"\"no\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""),
        ] {
            assert_eq!(csv_cell(cell), expected);
        }
        assert_eq!(HEAD.split(',').count(), 20);
    }
}

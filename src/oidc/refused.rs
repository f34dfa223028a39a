//! Redirect URIs that were refused lately, for administrators: most are an application's own, a letter away from the one
//! that is registered.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::Parameters;
use crate::clock::Micros;
use crate::config::{Apps, OidcClient};

/// Of each client: anybody can send them.
const MOST: usize = 3;
/// Bytes that are kept. No registered one is longer.
const LONGEST: usize = 2_048;

/// By client ID, the newest first. In memory: what strangers send fills no table.
#[derive(Default)]
pub struct RefusedRedirects(Mutex<HashMap<String, VecDeque<RefusedRedirect>>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRedirect {
    pub uri: String,
    pub at: Micros,
    /// Bytes, from the registered one that is nearest.
    differs: usize,
}

impl RefusedRedirects {
    /// Of a request of a client that is known, so that there are no more of them than clients.
    pub fn note(&self, query: &str, apps: &Apps, at: Micros) {
        let parameters = Parameters::parse(query.as_bytes());
        let (Ok(Some(id)), Ok(Some(uri))) = (parameters.get("client_id"), parameters.get("redirect_uri"))
        else {
            return;
        };
        let uri = uri[..uri.floor_char_boundary(LONGEST)].to_owned();
        let Some((.., differs)) = apps.client(id).and_then(|(_, client)| client.nearest(&uri)) else {
            return;
        };
        let mut all = self.0.lock();
        let lately = all.entry(id.to_owned()).or_default();
        lately.retain(|known| known.uri != uri);
        lately.push_front(RefusedRedirect { uri, at, differs });
        if lately.len() > MOST {
            // Strangers do not push out the one that is most likely a mistake.
            let nearest = (0..=MOST).min_by_key(|index| lately[*index].differs);
            lately.remove(if nearest == Some(MOST) { MOST - 1 } else { MOST });
        }
    }

    /// Those that the client does not admit by now.
    pub fn of(&self, client: &OidcClient) -> Vec<RefusedRedirect> {
        let all = self.0.lock();
        let lately = all.get(&client.client_id).into_iter().flatten();
        lately.filter(|refused| client.redirect(&refused.uri).is_none()).cloned().collect()
    }
}

//! Requests that were refused lately, for administrators: with redirect URIs that are an application's own, a letter away
//! from the one that is registered, and without PKCE.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::Parameters;
use crate::clock::Micros;
use crate::config::{Apps, OidcClient, Pkce};

/// The most that are kept of each client: anybody can send them.
const MOST: usize = 3;
/// Bytes that are kept. No registered one is longer.
const LONGEST: usize = 2_048;

/// Refusals by client ID. In memory: what strangers send fills no table.
#[derive(Default)]
pub struct RefusedRequests(Mutex<HashMap<String, ClientRefusals>>);

#[derive(Default)]
struct ClientRefusals {
    /// The newest first.
    redirects: VecDeque<RefusedRedirect>,
    without_pkce: Option<Micros>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRedirect {
    pub uri: String,
    pub at: Micros,
    /// Bytes, from the registered one that is nearest.
    differs: usize,
}

impl RefusedRequests {
    /// The redirect URI of a request of a client that is known, so that there are no more of them than clients.
    pub fn note_redirect(&self, query: &str, apps: &Apps, at: Micros) {
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
        let lately = &mut all.entry(id.to_owned()).or_default().redirects;
        lately.retain(|known| known.uri != uri);
        lately.push_front(RefusedRedirect { uri, at, differs });
        if lately.len() > MOST {
            // Strangers do not push out the one that is most likely a mistake.
            let nearest = (0..=MOST).min_by_key(|index| lately[*index].differs);
            lately.remove(if nearest == Some(MOST) { MOST - 1 } else { MOST });
        }
    }

    pub fn note_without_pkce(&self, client: &OidcClient, at: Micros) {
        self.0.lock().entry(client.client_id.clone()).or_default().without_pkce = Some(at);
    }

    /// When one was refused that had no PKCE, if the client may be let off it and is not by now.
    pub fn without_pkce(&self, client: &OidcClient) -> Option<Micros> {
        let may_go_without = client.secret.is_some() && client.pkce == Pkce::Required;
        self.0.lock().get(&client.client_id)?.without_pkce.filter(|_| may_go_without)
    }

    /// Redirect URIs that the client does not admit by now.
    pub fn redirects(&self, client: &OidcClient) -> Vec<RefusedRedirect> {
        let all = self.0.lock();
        let lately = all.get(&client.client_id).into_iter().flat_map(|refusals| &refusals.redirects);
        lately.filter(|refused| client.redirect(&refused.uri).is_none()).cloned().collect()
    }
}

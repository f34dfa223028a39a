//! Settings of applications for a client here: the blocks of docs/clients.md, of which tests run what can be run, with one's
//! own values in the place of the page's.

const PAGE: &str = include_str!("../../../../docs/clients.md");
/// Where Gatehouse is on that page.
const ISSUER: &str = "https://id.example";
/// What the id of a client stands behind, in small letters.
const BEFORE_ID: [&str; 7] =
    ["client_id", "client-id", "clientid", "identifier:", "--key ", "oidcclientid", "client id"];

/// One application's blocks, as the page has them.
pub struct Recipe {
    pub name: &'static str,
    /// The id and the address of the page's client.
    id: &'static str,
    address: &'static str,
    /// Blocks for the application, without that of Gatehouse.
    blocks: Vec<&'static str>,
}

/// In the order of the page.
pub fn recipes() -> Vec<Recipe> {
    PAGE.split("\n## ").skip(1).filter_map(Recipe::read).collect()
}

impl Recipe {
    fn read(section: &'static str) -> Option<Self> {
        let name = section.lines().next()?;
        let mut blocks = section.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
        let (_, own) = blocks.find(|(_, text)| text.starts_with("[[apps]]"))?;
        let quoted = |text: &'static str| text.split('"').nth(1);
        let id = quoted(own.split("name = ").nth(1)?)?;
        let uri = quoted(own.split("redirect_uris = ").nth(1)?)?;
        let end = uri.match_indices('/').nth(2).map_or(uri.len(), |(at, _)| at);
        Some(Self { name, id, address: &uri[..end], blocks: blocks.map(|(_, text)| text).collect() })
    }

    /// The blocks for a client with that id and address, of a server with that public URL.
    pub fn with(&self, issuer: &str, id: &str, address: &str) -> Vec<String> {
        let own = |block: &&str| {
            let line = |line: &str| self.with_id(line, id) + "\n";
            let lines: String = block.lines().map(line).collect();
            // A host stands alone, too.
            let values = [(self.address, address), (ISSUER, issuer)];
            let hosts = values.map(|(theirs, own)| (host(theirs), host(own)));
            let all = values.into_iter().chain(hosts);
            all.fold(lines, |text, (theirs, own)| text.replace(theirs, own)).trim_end().to_owned()
        };
        self.blocks.iter().map(own).collect()
    }

    fn with_id(&self, line: &str, id: &str) -> String {
        let small = line.to_lowercase();
        let behind = BEFORE_ID.iter().filter_map(|word| Some(small.find(word)? + word.len())).min();
        let at = behind.and_then(|behind| Some(behind + line.get(behind..)?.find(self.id)?));
        // No other value stands between the two.
        let (Some(behind), Some(at)) = (behind, at) else { return line.to_owned() };
        let is_value = line[behind..at].chars().all(|it| !it.is_alphanumeric());
        if !is_value {
            return line.to_owned();
        }
        [&line[..at], id, &line[at + self.id.len()..]].concat()
    }
}

/// What is after the scheme.
fn host(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_application_of_the_page_gets_ones_own_values() {
        let all = recipes();
        let names: Vec<_> = all.iter().map(|recipe| recipe.name).collect();
        assert_eq!(names.len(), 17, "{names:?}");
        for recipe in &all {
            let own =
                recipe.with("https://login.corp.example", "my-own", "https://app.corp.example").join("\n");
            assert!(!own.contains("id.example"), "{}: {own}", recipe.name);
            // Mobile apps have a table, not a block.
            if !recipe.blocks.is_empty() {
                assert!(own.contains("my-own"), "{}: {own}", recipe.name);
                assert!(!own.contains(recipe.address), "{}: {own}", recipe.name);
            }
        }
        let grafana = all.iter().find(|recipe| recipe.name == "Grafana").unwrap();
        let own = grafana.with("http://127.0.0.1:8080", "dash", "https://dash.corp.example").join("\n");
        for line in [
            "client_id = dash",
            "auth_url = http://127.0.0.1:8080/oauth/authorize",
            "root_url = https://dash.corp.example",
            "client_secret = $__env{GRAFANA_SECRET}",
        ] {
            assert!(own.lines().any(|it| it == line), "{line}: {own}");
        }
    }
}

//! Figures as pages show them.

use std::collections::BTreeMap;

use crate::support::app::Client;

pub struct Page(pub String);

impl Page {
    pub async fn of(client: &Client, path: &str) -> Self {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        Self(answer.text)
    }

    fn after(&self, lead: &str) -> &str {
        self.0.split_once(lead).unwrap_or_else(|| panic!("no {lead} in {}", self.0)).1
    }

    /// A card's figure.
    pub fn card(&self, name: &str) -> u64 {
        let card = self.after(&format!("<dt>{name}</dt>"));
        number(card.split_once("<strong>").unwrap().1)
    }

    /// What a card says of the time before.
    pub fn change(&self, name: &str) -> &str {
        let card = self.after(&format!("<dt>{name}</dt>"));
        card.split_once("<dd title=\"Against").unwrap().1.split(['>', '<']).nth(1).unwrap()
    }

    /// The sums of a chart.
    pub fn chart(&self, id: &str) -> BTreeMap<String, u64> {
        let told = self.after(&format!("<desc id=\"{id}-desc\">")).split('<').next().unwrap();
        let series = told.split(" · ").map(|one| one.rsplit_once(' ').unwrap());
        series.map(|(name, count)| (name.to_owned(), number(count))).collect()
    }

    /// What a limit did in the hour, on the page of limits.
    pub fn limit(&self, name: &str) -> BTreeMap<String, u64> {
        let card = self.after(&format!("<code>{name}</code>"));
        let foot = card.split_once("class=\"use\"").unwrap().1.split("</p>").next().unwrap();
        let counts = foot.split("<strong>").skip(1).map(|one| one.split_once("</strong> ").unwrap());
        counts.map(|(count, rest)| (rest.split('<').next().unwrap().to_owned(), number(count))).collect()
    }

    /// How near the busiest subject of a limit came to a rule.
    pub fn nearest(&self, name: &str) -> &str {
        let foot = self.after(&format!("<code>{name}</code>")).split("</tr>").next().unwrap();
        foot.split_once("<span class=\"soft\" title")
            .map_or("", |(_, it)| it.split(['>', '<']).nth(1).unwrap())
    }

    /// The cells in a row of a table that a link leads.
    pub fn row(&self, href: &str) -> Vec<u64> {
        let row = self.after(&format!("href=\"{href}\"")).split("</tr>").next().unwrap();
        row.split("<td class=\"number\"")
            .skip(1)
            .map(|cell| number(cell.split_once('>').unwrap().1))
            .collect()
    }

    /// A fact of an attack, or of the status.
    pub fn fact(&self, name: &str) -> &str {
        self.after(&format!("<dt>{name}</dt><dd>")).split("</dd>").next().unwrap()
    }

    /// Whether a part of the status is amber.
    pub fn is_amber(&self, name: &str) -> bool {
        self.fact(name).contains("dot warn")
    }
}

/// The digits that a text begins with.
pub fn number(text: &str) -> u64 {
    let digits: String =
        text.chars().take_while(|letter| letter.is_ascii_digit() || *letter == ',').collect();
    digits.replace(',', "").parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

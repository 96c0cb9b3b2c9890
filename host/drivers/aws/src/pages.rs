//! Reads lists page by page, to their end.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::query::Query;

/// The rows of a page. An instance takes 5 to 10 KB of XML, and a response may have 4 MiB.
const ROWS: &str = "200";
/// The most pages. An operation has 32 steps; four steps are left for other requests.
const PAGES: usize = 28;

/// A list of EC2.
pub(crate) struct List {
    /// The action that reads it.
    pub(crate) action: &'static str,
    /// The element of the list. An empty list has it, too.
    pub(crate) element: &'static str,
    /// The path of a row, and the fields of it that are kept.
    pub(crate) row: &'static str,
    pub(crate) fields: &'static [&'static str],
}

/// A filter: its name and its values.
pub(crate) type Filter<'a> = (&'a str, &'a [&'a str]);

impl List {
    /// Every page of the list. An empty page need not be the last.
    pub(crate) async fn read(&self, cx: &Context, filters: &[Filter<'_>]) -> Result<Vec<Value>, Failure> {
        let mut pages: Vec<Value> = Vec::new();
        let mut token = String::new();
        while pages.len() < PAGES {
            let page = self.page(cx, filters, &token).await?;
            let next = tree::text(&page, "nextToken").to_owned();
            let leads_there = |page: &Value| tree::text(page, "nextToken") == next;
            if !next.is_empty() && pages.iter().any(leads_there) {
                return Err(self.unreadable("its pages repeat a token"));
            }
            pages.push(page);
            if next.is_empty() {
                return Ok(pages);
            }
            token = next;
        }
        let message = format!(
            "EC2 {}: the list has more than {PAGES} pages of {ROWS} rows",
            self.action
        );
        Err(failure(Code::ResourceExhausted, message))
    }

    /// The page to which a token leads; the first one without a token.
    async fn page(&self, cx: &Context, filters: &[Filter<'_>], token: &str) -> Result<Value, Failure> {
        let mut query = Query::new(self.action).field("MaxResults", ROWS);
        for (name, values) in filters {
            query = query.filter(name, values);
        }
        if !token.is_empty() {
            query.put("NextToken", token);
        }
        let query = query.keep(self.row, self.fields).keep("", &["nextToken"]);
        let page = query.read(cx).await?;
        self.check(&page)?;
        Ok(page)
    }

    /// Checks that an answer has the list. An answer without the list is cut off; it is not an empty list.
    pub(crate) fn check(&self, page: &Value) -> Result<(), Failure> {
        match tree::first(page, self.element) {
            Some(_) => Ok(()),
            None => Err(self.unreadable("it has no list")),
        }
    }

    /// The failure of an answer that lacks a required part.
    pub(crate) fn unreadable(&self, what: &str) -> Failure {
        error::unreadable(self.action, what, Effect::Read)
    }
}

//! Reads lists to their end.

use polity_driver_sdk::prelude::*;

use crate::api::{Service, read};
use crate::error::{Does, unreadable};
use crate::id::is_id;

/// The most pages of a list. An operation has 32 steps, and may read two lists.
const PAGES: usize = 14;

/// A list of a service.
pub(crate) struct List<'a> {
    /// The service.
    pub(crate) service: Service,
    /// The path.
    pub(crate) path: &'a [&'a str],
    /// The field of the rows.
    pub(crate) rows: &'a str,
    /// The filters.
    pub(crate) query: &'a [(&'a str, &'a str)],
    /// The fields of a row that are kept.
    pub(crate) keep: &'a [&'a str],
}

impl List<'_> {
    /// All rows. If the list cannot be read to its end, this fails, and never returns a shorter list.
    pub(crate) async fn read(&self, cx: &Context) -> Result<Vec<Value>, Failure> {
        let mut rows = Vec::new();
        let mut markers: Vec<String> = Vec::new();
        while markers.len() < PAGES {
            let page = self.page(cx, markers.last()).await?;
            let found = self.rows_of(&page)?;
            rows.extend(found.iter().cloned());
            if !self.has_next(&page)? {
                return Ok(rows);
            }
            let last = found.last().and_then(|row| row["id"].as_str());
            let last = last.filter(|id| is_id(id) && !markers.iter().any(|marker| marker == id));
            let last = last.ok_or_else(|| {
                self.unreadable(&page, "it promises another page, but its last row has no new id")
            })?;
            markers.push(last.to_owned());
        }
        let message = format!(
            "{} has more than {PAGES} pages of {}, the most that one operation reads",
            self.service.name(),
            self.rows
        );
        Err(failure(Code::ResourceExhausted, message))
    }

    /// The rows of the first page alone.
    pub(crate) async fn first_page(&self, cx: &Context) -> Result<Vec<Value>, Failure> {
        let page = self.page(cx, None).await?;
        let (rows, is_more) = (self.rows_of(&page)?, self.has_next(&page)?);
        if rows.is_empty() && is_more {
            Err(self.unreadable(&page, "it promises another page, but has no rows"))
        } else {
            Ok(rows.clone())
        }
    }

    fn rows_of<'p>(&self, page: &'p Response) -> Result<&'p Vec<Value>, Failure> {
        let found = page.body.get(self.rows).and_then(Value::as_array);
        found.ok_or_else(|| self.unreadable(page, "it has no list"))
    }

    async fn page(&self, cx: &Context, marker: Option<&String>) -> Result<Response, Failure> {
        let mut request = Request::get(self.service.endpoint()).path(self.path.iter().copied());
        for (name, value) in self.query {
            request = request.query(name, *value);
        }
        // No `limit`: with a limit, nova leaves servers of cells that are down out of the list.
        if let Some(marker) = marker {
            request = request.query("marker", marker);
        }
        let links = format!("{}_links.rel", self.rows);
        let kept: Vec<String> = self
            .keep
            .iter()
            .map(|field| format!("{}.{field}", self.rows))
            .collect();
        let keep: Vec<&str> = kept.iter().chain([&links]).map(String::as_str).collect();
        let page = read(cx, self.service, request, &keep).await;
        page.map_err(|failure| match failure.code {
            // If the list itself is not found, nothing is known about its rows, so this must not count as `not-found`.
            Code::NotFound => Failure {
                code: Code::Unimplemented,
                ..failure
            },
            _ => failure,
        })
    }

    fn has_next(&self, page: &Response) -> Result<bool, Failure> {
        match page.body.get(format!("{}_links", self.rows)) {
            None => Ok(false),
            Some(Value::Array(links)) => Ok(links.iter().any(|link| link["rel"] == "next")),
            Some(_) => Err(self.unreadable(page, "its links are not a list")),
        }
    }

    fn unreadable(&self, page: &Response, what: &str) -> Failure {
        unreadable(self.service, Does::Read, page, what)
    }
}

//! Requests of EC2's Query API: one URL, a form with the action, and an answer in XML.

use polity_driver_sdk::Effect;
use polity_driver_sdk::form::Form;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::manifest::EC2;

/// The version of the API. It is the latest version, and every region has it.
const VERSION: &str = "2016-11-15";

/// The paths that are kept of every response: its errors, and the id of the request.
const KEPT: [&str; 2] = ["Response.Errors.Error", "Response.RequestID"];

/// A request that is being built.
pub(crate) struct Query {
    action: &'static str,
    form: Form,
    filters: usize,
    keep: Vec<String>,
}

impl Query {
    /// A request for this action.
    pub(crate) fn new(action: &'static str) -> Self {
        let query = Query {
            action,
            form: Form::new().field("Action", action).field("Version", VERSION),
            filters: 0,
            keep: KEPT.map(str::to_owned).into(),
        };
        query.keep("Errors.", &["Error"])
    }

    /// Adds a field.
    pub(crate) fn put(&mut self, name: impl Into<String>, value: impl Into<Text>) {
        self.form.push(name, value);
    }

    /// Adds a field if there is a value.
    pub(crate) fn put_some(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.form.push(name, value.to_string());
        }
    }

    /// With a field.
    #[must_use]
    pub(crate) fn field(mut self, name: &str, value: impl Into<Text>) -> Self {
        self.put(name, value);
        self
    }

    /// With a filter: the field must be equal to one of these values.
    #[must_use]
    pub(crate) fn filter(mut self, name: &str, values: &[&str]) -> Self {
        self.filters += 1;
        let filter = format!("Filter.{}", self.filters);
        self.put(format!("{filter}.Name"), name);
        for (nth, value) in (1..).zip(values) {
            self.put(format!("{filter}.Value.{nth}"), literal(value));
        }
        self
    }

    /// Keeps these paths below the root of the answer. The driver sees nothing else of the answer.
    #[must_use]
    pub(crate) fn keep(mut self, below: &str, fields: &[&str]) -> Self {
        let at = |field: &&str| format!("{}Response.{below}{field}", self.action);
        self.keep.extend(fields.iter().map(at).collect::<Vec<_>>());
        self
    }

    /// Sends a request that reads. The value is the root of the answer.
    pub(crate) async fn read(self, cx: &Context) -> Result<Value, Failure> {
        self.send(cx, Request::search(EC2), Effect::Read).await
    }

    /// Sends a request that changes an instance.
    pub(crate) async fn change(self, cx: &Context, instance: &Owned<'_>) -> Result<Value, Failure> {
        let request = Request::change("POST", EC2, instance);
        self.send(cx, request, Effect::Change).await
    }

    /// Sends the request that creates.
    pub(crate) async fn create(self, cx: &Context) -> Result<Value, Failure> {
        self.send(cx, Request::create("POST", EC2), Effect::Create).await
    }

    /// Sends the request. The value is the root of the answer.
    async fn send(self, cx: &Context, request: Request, effect: Effect) -> Result<Value, Failure> {
        let request = request.form(self.form).keep(self.keep);
        let response = cx.send(request).await?;
        error::root(response, self.action, effect)
    }
}

/// A value of a filter, escaped: EC2 would read `*`, `?` and `\` as patterns.
fn literal(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '*' | '?' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_filter_is_no_pattern() {
        assert_eq!(literal(r"web-1"), "web-1");
        assert_eq!(literal(r"w*b?\"), r"w\*b\?\\");
    }
}

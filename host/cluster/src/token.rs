//! Tokens of service accounts, by which clouds know who asks.

use std::time::Duration;

use polity_core::contract::{Code, Failure, ObjectRef};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::Verb;
use crate::path::core_object;
use crate::request::{named, until};
use crate::{Cluster, LONGEST};

/// The shortest lifetime that API servers give a token (`minExpirationSeconds` of `k8s.io/kubernetes/pkg/registry`).
const SHORTEST: Duration = Duration::from_mins(10);
/// The longest that this host asks for.
const LONGEST_LIFE: Duration = Duration::from_hours(24);

impl Cluster {
    /// A new token of a service account, valid for these audiences. Only the code that logs in to clouds may call this.
    ///
    /// # Errors
    /// `permission-denied` if the host has no right to `serviceaccounts/token`, `not-found` if there is no such account,
    /// `invalid-argument` without an audience, or with one of the API server: the token would be good for the API server itself.
    pub async fn service_account_token(
        &self,
        namespace: &str,
        name: &str,
        audiences: &[String],
        life: Duration,
    ) -> Result<String, Failure> {
        let account = core_object("ServiceAccount", Some(namespace), name);
        let what = format!("the token of {}", named(&account));
        if audiences.is_empty() || audiences.iter().any(String::is_empty) {
            let message = format!("{what}: no audience is named");
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        let own = self.api_audiences.get_or_try_init(async || {
            let answer = self.token_request(&account, &what, &[], SHORTEST).await?;
            let audiences = answer["spec"]["audiences"].as_array().into_iter().flatten();
            let audiences: Vec<String> = audiences.filter_map(|it| Some(it.as_str()?.to_owned())).collect();
            if audiences.is_empty() {
                let message = format!("{what}: the API server does not say which audiences are its own");
                return Err(Failure::new(Code::Internal, message));
            }
            Ok(audiences)
        });
        let own = own.await?;
        if let Some(audience) = audiences.iter().find(|audience| own.contains(audience)) {
            let message = format!(
                "{what}: the audience {audience:?} is the API server's: with such a token the server of a connection could act here"
            );
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        let answer = self.token_request(&account, &what, audiences, life).await?;
        match answer["status"]["token"].as_str() {
            Some(token) if !token.is_empty() => Ok(token.to_owned()),
            _ => Err(Failure::new(
                Code::Internal,
                format!("{what}: the answer has none"),
            )),
        }
    }

    /// The answer to a request for a token. Without audiences it names those of the API server.
    async fn token_request(
        &self,
        account: &ObjectRef,
        what: &str,
        audiences: &[String],
        life: Duration,
    ) -> Result<Value, Failure> {
        let seconds = life.clamp(SHORTEST, LONGEST_LIFE).as_secs();
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": audiences, "expirationSeconds": seconds},
        });
        let end = Instant::now() + LONGEST;
        let asked = async {
            let resource = self.resource(&account.kind).await?;
            let path = resource.object(account.namespace.as_deref(), &account.name, Some("token"))?;
            self.call(Verb::Create, what, &path, Some(request.to_string()))
                .await
        };
        until(end, Verb::Create, what, asked).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply};

    #[tokio::test]
    async fn a_token_is_asked_for_with_its_audiences_and_a_lifetime_that_api_servers_give() {
        let own = Reply::json(
            201,
            json!({"spec": {"audiences": ["https://kubernetes.default.svc"]}}),
        );
        let answer = Reply::json(201, json!({"status": {"token": "a.b.c"}}));
        let fake = Fake::serving([own, answer]);
        let audiences = ["sts.amazonaws.com".to_owned()];
        let token = fake
            .cluster()
            .service_account_token("team-a", "builder", &audiences, Duration::from_secs(1))
            .await;
        assert_eq!(token.expect("a token"), "a.b.c");
        let seen = fake.seen();
        let request = seen.last().expect("it was asked");
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/api/v1/namespaces/team-a/serviceaccounts/builder/token")
        );
        let spec = json!({"audiences": audiences, "expirationSeconds": 600});
        assert_eq!(request.body["spec"], spec);
    }

    #[tokio::test]
    async fn no_token_is_asked_for_that_is_good_for_the_api_server() {
        let own = "https://kubernetes.default.svc";
        let fake = Fake::serving([Reply::json(201, json!({"spec": {"audiences": ["other", own]}}))]);
        let cluster = fake.cluster();
        for _ in 0..2 {
            let audiences = ["sts.amazonaws.com".to_owned(), own.to_owned()];
            let token = cluster
                .service_account_token("team-a", "builder", &audiences, SHORTEST)
                .await;
            let refused = token.expect_err("refused");
            assert!(
                refused.code == Code::InvalidArgument && refused.message.contains(own),
                "{refused}"
            );
        }
        let asked = fake.seen().into_iter().filter(|request| request.method == "POST");
        assert_eq!(
            asked.count(),
            1,
            "the audiences of the API server are asked for once"
        );
    }

    #[tokio::test]
    async fn without_an_audience_nobody_is_asked() {
        let fake = Fake::serving([]);
        let token = fake
            .cluster()
            .service_account_token("team-a", "builder", &[], SHORTEST)
            .await;
        assert_eq!(token.expect_err("refused").code, Code::InvalidArgument);
        assert!(fake.seen().iter().all(|request| request.method == "GET"));
    }
}

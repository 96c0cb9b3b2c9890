//! Resolves the values behind sealed references and credential plans. Values are read from the cluster at
//! each cloud call and are not kept.

use std::sync::Arc;
use std::time::Duration;

use polity_clouds::{BoxFuture, PlanSecret, PlanToken, SecretContent, SecretRef, SecretResolver};
use polity_cluster::Cluster;
use polity_core::call::Session;
use polity_core::contract::{Code, Failure};

/// The Secrets of a cluster.
pub struct ClusterSecrets {
    cluster: Arc<Cluster>,
}

impl ClusterSecrets {
    /// Resolves the Secrets of this cluster.
    pub fn new(cluster: Arc<Cluster>) -> Self {
        ClusterSecrets { cluster }
    }

    async fn value(&self, session: &Session, secret: &SecretRef) -> Result<Vec<u8>, Failure> {
        let namespace = session.namespace.as_deref();
        let found = self
            .cluster
            .secret_values(namespace, &secret.name, &session.owner);
        let mut found = found.await?;
        found.values.remove(&secret.key).ok_or_else(|| {
            let message = format!("Secret {:?} has no entry {:?}", secret.name, secret.key);
            Failure::new(Code::NotFound, message)
        })
    }

    async fn content(&self, secret: &PlanSecret) -> Result<SecretContent, Failure> {
        // The empty owner makes sure that no minted token is used as a credential: no token has that owner.
        let found = self
            .cluster
            .secret_values(Some(&secret.namespace), &secret.name, "");
        let found = found.await?;
        Ok(SecretContent {
            digest: found.digest,
            values: found.values,
        })
    }
}

impl SecretResolver for ClusterSecrets {
    fn resolve<'a>(
        &'a self,
        session: &'a Session,
        secret: &'a SecretRef,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        Box::pin(self.value(session, secret))
    }

    fn credentials<'a>(&'a self, secret: &'a PlanSecret) -> BoxFuture<'a, Result<SecretContent, Failure>> {
        Box::pin(self.content(secret))
    }

    fn token<'a>(&'a self, token: &'a PlanToken) -> BoxFuture<'a, Result<String, Failure>> {
        let life = Duration::from_secs(token.expiration_seconds);
        let PlanToken {
            namespace,
            name,
            audiences,
            ..
        } = token;
        Box::pin(
            self.cluster
                .service_account_token(namespace, name, audiences, life),
        )
    }
}

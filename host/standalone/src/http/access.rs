//! Access to a served API: everybody who has its kubeconfig.
//!
//! client-go sends no token over plain HTTP, so the port speaks TLS. Its certificate is made at start by an
//! authority whose key is thrown away at once. The kubeconfig contains the authority's certificate and the
//! token.

use std::{net::SocketAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, header::AUTHORIZATION};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// The names for which the certificate is valid.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The reason why access cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The certificate could not be made.
    #[error("making a certificate for the standalone API server")]
    Certificate(#[from] rcgen::Error),
    /// TLS does not accept the certificate.
    #[error("setting up TLS for the standalone API server")]
    Tls(#[from] rustls::Error),
}

/// A bearer token, and a certificate for the loopback interface that was made for this start.
#[derive(Clone)]
pub struct Access {
    token: Arc<str>,
    authority: Arc<str>,
    tls: Arc<ServerConfig>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Access with this token, which the caller draws at random.
    ///
    /// # Errors
    /// No certificate can be made, because the system returned no random bytes.
    pub fn new(token: &str) -> Result<Self, AccessError> {
        let key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority
            .distinguished_name
            .push(DnType::CommonName, "polity standalone authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_pem = authority.self_signed(&key)?.pem();
        let issuer = Issuer::new(authority, key);

        let key = KeyPair::generate()?;
        let mut server = CertificateParams::new(NAMES.map(str::to_owned))?;
        server
            .distinguished_name
            .push(DnType::CommonName, "polity standalone");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = server.signed_by(&key, &issuer)?.der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));

        let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            token: token.into(),
            authority: authority_pem.into(),
            tls: Arc::new(tls),
        })
    }

    /// A kubeconfig with one context, for a server at `address` with this access.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        let authority = STANDARD.encode(&*self.authority);
        let token = serde_json::Value::from(&*self.token);
        format!(
            "\
apiVersion: v1
kind: Config
clusters:
- name: polity
  cluster:
    server: https://{address}
    certificate-authority-data: {authority}
users:
- name: polity
  user:
    token: {token}
contexts:
- name: polity
  context:
    cluster: polity
    user: polity
    namespace: default
current-context: polity
"
        )
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.tls.clone())
    }

    /// Whether a request carries the token.
    pub(crate) fn is_granted(&self, headers: &HeaderMap) -> bool {
        let header = headers
            .get(AUTHORIZATION)
            .map_or(&b""[..], |value| value.as_bytes());
        header
            .strip_prefix(b"Bearer ")
            .is_some_and(|token| same(token, self.token.as_bytes()))
    }
}

/// Compares two texts in constant time, so that the duration does not tell how much of a token is right.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_token_is_let_in() {
        let access = Access::new("secret").unwrap();
        let with = |value: &str| HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        assert!(access.is_granted(&with("Bearer secret")));
        for wrong in [
            "Bearer secre",
            "Bearer secrets",
            "Bearer ",
            "secret",
            "Basic secret",
        ] {
            assert!(!access.is_granted(&with(wrong)), "{wrong}");
        }
        assert!(!access.is_granted(&HeaderMap::new()));
    }
}

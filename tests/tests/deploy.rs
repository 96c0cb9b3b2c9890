//! What `host/deploy` installs, against a real API server: rendered, applied, and run with its own arguments, account and
//! token; and what it tells of itself, by the programs that people watch it with.

mod chart;
mod kustomize;
mod monitoring;
mod releases;
mod rendered;
mod site;

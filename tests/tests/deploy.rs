//! The objects that `host/deploy` installs, on a real API server: they are rendered, applied, and run with their own
//! arguments, account and token. Their alerts and dashboard are read by promtool.

mod admission;
mod chart;
mod install;
mod kustomize;
mod monitoring;
mod release;
mod releases;
mod rendered;
mod site;

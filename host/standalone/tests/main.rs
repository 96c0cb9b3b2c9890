//! The API through a client, a module for each part of it. One program, so that it is built and linked once.

mod budgets;
mod builtins;
mod deletions;
mod evictions;
mod keeping;
mod lists;
mod objects;
mod odd_requests;
mod schemas;
mod serving;
mod thing_fixture;
mod volumes;
mod watches;

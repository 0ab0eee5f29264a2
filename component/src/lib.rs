//! What every component has beside its work: leader election, secure serving, health, metrics, logging, configuration.

.DEFAULT_GOAL := help
.PHONY: help run test lint bench torture fuzz setup

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Run the node; ARGS="topic list" and the like are passed on
	cargo run --release -- $(ARGS)

test: setup lint ## Check everything: format, lints, all tests on both back ends
	cargo test --quiet --workspace --doc
	cargo nextest run --workspace

lint: ## Check format and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: setup ## Measure stores, search, the node next to another relay, beside a purge, with another node to fetch from, and beside one to gossip with; PURGED=1000000 for a larger one
	KUKURI_BENCH_PURGED=$(or $(PURGED),200000) cargo bench -p kukuri-node --bench heart
	cargo bench -p kukuri-index --bench search -- $(or $(SEARCHED),1000000)
	cargo build --release -p kukuri-node -p kukuri-bench
	scripts/other-relay
	target/release/kukuri-bench suite
	target/release/kukuri-bench search
	target/release/kukuri-bench sync
	target/release/kukuri-bench gossip
	target/release/kukuri-bench purge --events $(or $(PURGED),200000)

torture: setup ## Kill, cut and fill for longer than `make test` does
	KUKURI_TORTURE=long cargo nextest run --workspace --profile torture -E 'binary(/^torture/)'

fuzz: ## Feed parsers with what libFuzzer thinks of; SECONDS=600 for longer
	scripts/fuzz $(or $(SECONDS),60)

setup: ## Install what tests need and the machine lacks
	@scripts/setup

-- Billing's copy of UserBalance, kept up by applying changes. No ledger and no version: it trusts the topic.
create table account (
    user_id uuid primary key,
    balance numeric(10, 2) not null default 0,
    tariff text not null default 'basic'
);

-- How the values of a link's tables were distributed in a run: shares, and quantiles of many rows, of no single one.
create table distribution (
    link text not null,
    run_id text not null references run (id),
    side text not null check (side in ('source', 'copy')),
    figures jsonb not null,
    recorded_at timestamp with time zone not null,
    primary key (link, run_id, side)
);

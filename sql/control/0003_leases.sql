-- Who may write, and until when. The token grows with every holder and is never given twice.
create table lease (
    name text not null primary key,
    holder text not null,
    token bigint not null,
    acquired_at timestamp with time zone not null,
    expires_at timestamp with time zone not null
);

-- Persons who registered and opened an auction within the same window of 10 s.
WITH newcomer AS (
    SELECT *, time_bucket(INTERVAL 10 SECONDS, date_time, TIMESTAMPTZ '1970-01-01 00:00:00+00') AS stime
    FROM person
)
SELECT DISTINCT newcomer.id, newcomer.name, newcomer.stime
FROM newcomer
JOIN auction
    ON auction.seller = newcomer.id
    AND auction.date_time >= newcomer.stime
    AND auction.date_time < newcomer.stime + INTERVAL 10 SECONDS

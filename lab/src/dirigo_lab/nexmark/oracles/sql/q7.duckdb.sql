-- Per window of 10 s, all bids of the highest price.
WITH placed AS (
    SELECT *, time_bucket(INTERVAL 10 SECONDS, date_time, TIMESTAMPTZ '1970-01-01 00:00:00+00') AS window_start
    FROM bid
),
highest AS (
    SELECT window_start, MAX(price) AS price
    FROM placed
    GROUP BY window_start
)
SELECT placed.auction, placed.bidder, placed.price, placed.date_time, placed.extra
FROM placed
JOIN highest ON placed.window_start = highest.window_start AND placed.price = highest.price

-- Per bidder and auction, the last bid.
WITH ranked AS (
    SELECT
        *,
        ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, event_number DESC) AS place
    FROM bid
)
SELECT auction, bidder, price, channel, url, date_time, extra
FROM ranked
WHERE place = 1

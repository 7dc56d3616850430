-- Per auction, the ten highest bids and their places.
WITH ranked AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, event_number) AS place
    FROM bid
)
SELECT auction, bidder, price, channel, url, date_time, extra, CAST(place AS BIGINT) AS rank_number
FROM ranked
WHERE place <= 10

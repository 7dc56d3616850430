-- Bids in a range of converted prices, with the kind of their hour and the number of letters c in their padding.
WITH converted AS (
    SELECT *, CAST(0.908 * price AS DECIMAL(23, 3)) AS converted_price, EXTRACT(HOUR FROM date_time) AS clock_hour
    FROM bid
)
SELECT
    auction, bidder, converted_price AS price,
    CASE
        WHEN clock_hour BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN clock_hour <= 6 OR clock_hour >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time_type,
    date_time, extra,
    CAST(LENGTH(extra) - LENGTH(REPLACE(extra, 'c', '')) AS BIGINT) AS c_counts
FROM converted
WHERE converted_price > 1000000 AND converted_price < 50000000

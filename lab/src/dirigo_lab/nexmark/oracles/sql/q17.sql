-- Per auction and day, how many bids there are, in all and in each of three ranks of price, and what they offer.
-- The exact sum is divided once, so that it does not matter how an engine's own AVG adds and rounds.
SELECT
    auction,
    CAST(CAST(date_time AS DATE) AS STRING) AS day,
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    MIN(price) AS min_price,
    MAX(price) AS max_price,
    CAST(SUM(price) AS DOUBLE) / CAST(NULLIF(COUNT(price), 0) AS DOUBLE) AS avg_price,
    CAST(SUM(price) AS BIGINT) AS sum_price
FROM bid
GROUP BY auction, CAST(date_time AS DATE)

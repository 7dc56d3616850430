-- Per won auction, the average price of it and of up to ten that its seller sold before.
-- The exact sum is divided once, so that it does not matter how an engine's own AVG adds and rounds.
WITH ranked AS (
    SELECT
        auction.seller, bid.price, bid.date_time, bid.event_number,
        ROW_NUMBER() OVER (PARTITION BY auction.id ORDER BY bid.price DESC, bid.date_time, bid.event_number) AS place
    FROM auction
    JOIN bid ON bid.auction = auction.id
    WHERE bid.date_time BETWEEN auction.date_time AND auction.expires
)
SELECT
    seller,
    CAST(SUM(price) OVER latest AS DOUBLE) / CAST(NULLIF(COUNT(price) OVER latest, 0) AS DOUBLE) AS avg_price
FROM ranked
WHERE place = 1
WINDOW latest AS (
    PARTITION BY seller ORDER BY date_time, event_number ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
)
